package ensemble

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// Config describes an ensemble: a graph of models that pass tensors to each other. The caller has
// checked that each tensor is an input or the output of one step, and that the graph has no cycle.
type Config struct {
	Model string
	// Batches reports whether the ensemble's own tensors have a batch dimension.
	Batches bool
	// Decoupled reports whether a step, and so the ensemble, may send any number of responses.
	Decoupled bool
	Inputs    []string
	Outputs   []Output
	Steps     []Step
	// MaxInflight limits the requests in flight of each step, over all requests of the ensemble; 0:
	// no limit.
	MaxInflight int
	Composer    Composer
	Observer    scheduler.Observer // of the ensemble's own requests
	Memory      *budget.Account    // charged for requests; nil charges nothing
	Log         zerolog.Logger
}

// Output is an output of an ensemble. Dims are those of its config, before reshape.
type Output struct {
	Tensor string
	Dims   []int64
}

// Step is one request to a composing model.
type Step struct {
	Model     string
	Version   int64 // or infer.LatestVersion
	Decoupled bool
	Inputs    []Link // in the model's order
	Outputs   []Link // requested from the model
}

// Link connects an input or output of a step's model to a tensor of the ensemble.
type Link struct{ Name, Tensor string }

// Composer finds the composing models of an ensemble.
type Composer interface {
	// Hold returns the version that a request would reach. It stays loaded until it is released.
	Hold(model string, version int64) (Composed, error)
}

// Composed is a version of a model that a request of an ensemble holds.
type Composed interface {
	// Submit is infer.Submitter's. The Awaiter is the instance that has the request, or nil if that
	// is unknown or the request is queued.
	Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
	// Batches reports whether the model's tensors have a batch dimension.
	Batches() bool
	// Dims returns the dims of an input in the model's config, or nil if the model has no such
	// input.
	Dims(input string) []int64
	// TakesDevices reports whether the model accepts inputs on devices.
	TakesDevices() bool
	// Release ends the hold. It is called once.
	Release()
}
