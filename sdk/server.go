package sdk

import (
	"context"
	"iter"
)

// Tensor is an input that a backend sends to another model, or an output that it gets back.
type Tensor struct {
	Name     string
	DataType DataType
	Shape    []int64
	// Data is not changed until the last response has come, and only read after that.
	Data []byte
	// Of, if not nil, is an input whose bytes, type and shape are passed on without a copy; of the fields above Name alone counts then, and Shape
	// if it is not nil. Its request must not have been released, and may be right after the call.
	Of *Input
}

// LatestVersion asks for the highest version of a model that is ready.
const LatestVersion int64 = -1

// InferRequest is a request that a backend makes of a model of the same server (BLS).
type InferRequest struct {
	Model             string
	Version           int64 // 0 or LatestVersion: the highest that is ready
	ID                string
	CorrelationNumber uint64
	CorrelationText   string
	Flags             uint32 // SequenceStart, SequenceEnd
	Priority          uint64
	TimeoutMicros     uint64
	Parameters        []Parameter
	Inputs            []Tensor
	Outputs           []string // wanted; none means all
	// From is the request on whose behalf this one is made: it is traced below it, and cancelled with it. A request that is made in
	// Execute, with its context or one made of it, belongs to the requests of that batch without this.
	From *Request
}

// InferResponse is what comes back. Its receiver releases it, once; Data of its outputs is valid until then, and is only read.
type InferResponse struct {
	ID         string
	Model      string
	Version    int64
	Outputs    []Tensor
	Parameters []Parameter
	Err        *Error // then there are no outputs
	Final      bool   // nothing follows
	Empty      bool   // only a flag

	release func()
}

// NewInferResponse returns a copy of r that calls release. Backends do not call it, but their tests may.
func NewInferResponse(r InferResponse, release func()) *InferResponse {
	r.release = release
	return &r
}

// Release gives the outputs back. It may be called again, to no effect, by the same goroutine.
func (r *InferResponse) Release() {
	if release := r.release; release != nil {
		r.release = nil
		release()
	}
}

// Output returns the output of the given name, nil if there is none.
func (r *InferResponse) Output(name string) *Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// Server is what a backend may ask of its server. All of it may be called by any goroutine, until Model.Close has returned.
//
// An execution that waits for a model holds its instance meanwhile: a model that calls itself needs a second instance. The server refuses
// requests that could only wait for themselves.
type Server interface {
	// Infer runs a request and returns its response, whose Err is nil: what goes wrong is the error. It refuses decoupled models. When
	// ctx ends, the request is cancelled, and Infer returns.
	Infer(ctx context.Context, request *InferRequest) (*InferResponse, error)
	// InferAsync runs a request and returns; after an error there is no response. Each response is handed to receive, one
	// after another, by a goroutine of the request's own; the last one has Final set. receive may block.
	InferAsync(ctx context.Context, request *InferRequest, receive func(*InferResponse)) error
	// InferStream runs a request and yields its responses, also those with Err set. A model is not ahead of a loop by more than its window.
	// Leaving the loop cancels the request.
	InferStream(ctx context.Context, request *InferRequest) iter.Seq2[*InferResponse, error]

	// ModelReady tells whether a model serves, in this version or, with LatestVersion, any. An unknown one is an error.
	ModelReady(ctx context.Context, model string, version int64) (bool, error)
	// Decoupled tells whether a model may send any number of responses.
	Decoupled(model string, version int64) (bool, error)
	// Load loads a model, with the config if it is not "" (JSON) and the files, by their path, if there are any. It fails unless the server
	// is in explicit control mode.
	Load(ctx context.Context, model, config string, files map[string][]byte) error
	// Unload begins to unload a model; with what needs it, if dependents is true.
	Unload(ctx context.Context, model string, dependents bool) error
}
