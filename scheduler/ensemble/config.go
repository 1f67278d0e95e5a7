package ensemble

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// Config describes an ensemble: a graph of models that hand tensors to each other.
// The caller has checked it: each tensor is made by one step or is an input, and no
// step needs its own outputs.
type Config struct {
	Model string
	// Batches says that the ensemble's own tensors have a batch dimension.
	Batches bool
	// Decoupled says that one of the steps may answer any number of times: so does
	// the ensemble then.
	Decoupled bool
	Inputs    []string
	Outputs   []Output
	Steps     []Step
	// MaxInflight is how many requests of each step may be under way at once, over
	// all requests of the ensemble; 0 is no limit.
	MaxInflight int
	Composer    Composer
	Observer    scheduler.Observer // of the ensemble's own requests
	Log         zerolog.Logger
}

// Output is an output of an ensemble, with the dims that its config announces, or
// those before reshape.
type Output struct {
	Tensor string
	Dims   []int64
}

// Step is one request to a composing model.
type Step struct {
	Model     string
	Version   int64 // infer.LatestVersion: the latest that is ready when a request comes
	Decoupled bool
	Inputs    []Link // in the order in which the model gets them
	Outputs   []Link // that the model is asked for
}

// Link ties an input or output of a step's model to a tensor of the ensemble.
type Link struct{ Name, Tensor string }

// Composer finds the composing models of an ensemble.
type Composer interface {
	// Hold returns the version that a request would reach. It is not unloaded
	// before it is released.
	Hold(model string, version int64) (Composed, error)
}

// Composed is a version of a model that a request of an ensemble holds.
type Composed interface {
	// Submit is infer.Submitter's. The Awaiter is the instance that the request has
	// been handed to, nil if that is not known or it waits.
	Submit(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error)
	// Batches reports whether the model's tensors have a batch dimension.
	Batches() bool
	// Dims returns the dims of an input in the model's config, nil if it has no such
	// input.
	Dims(input string) []int64
	// TakesDevices reports whether inputs reach the model on devices.
	TakesDevices() bool
	// Release ends the hold. It is called once.
	Release()
}
