package sdk

import (
	"context"
	"iter"
)

// Tensor is an input that a backend sends to another model, or an output that it receives.
type Tensor struct {
	Name     string
	DataType DataType
	Shape    []int64
	// Data must not change until the last response has come, and is only read after that.
	Data []byte
	// Of, if not nil, is an input whose bytes, type and shape are passed on without a copy; of the fields above Name alone counts then, and Shape
	// if it is not nil. Its request must not have been released, and may be right after the call.
	Of *Input
}

// LatestVersion requests the highest version of a model that is ready.
const LatestVersion int64 = -1

// InferRequest is a backend's request to a model of the same server (BLS).
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
	Outputs           []string // requested; empty means all
	// From is the request on whose behalf this one is made: it is traced below it, and cancelled
	// with it. A request made in Execute with its context, or a derived one, belongs to that batch
	// without this field.
	From *Request
}

// InferResponse is a response of a model. Its receiver releases it once; Data of its outputs is
// valid until then, and read only.
type InferResponse struct {
	ID         string
	Model      string
	Version    int64
	Outputs    []Tensor
	Parameters []Parameter
	Err        *Error // without outputs
	Final      bool   // the last response
	Empty      bool   // a final flag alone

	release func()
}

// NewInferResponse returns a copy of r that calls release. Only tests of backends call it.
func NewInferResponse(r InferResponse, release func()) *InferResponse {
	r.release = release
	return &r
}

// Release releases the outputs. Further calls by the same goroutine have no effect.
func (r *InferResponse) Release() {
	if release := r.release; release != nil {
		r.release = nil
		release()
	}
}

// Output returns the output of the given name, or nil.
func (r *InferResponse) Output(name string) *Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// Server is the interface of a backend to its server. It may be used by any goroutine until
// Model.Close has returned.
//
// An execution that waits for a model holds its instance meanwhile: a model that calls itself needs
// a second instance. The server rejects requests that could only wait for themselves.
type Server interface {
	// Infer executes a request of a model that is not decoupled and returns its response, or its
	// error. When ctx ends, the request is cancelled and Infer returns.
	Infer(ctx context.Context, request *InferRequest) (*InferResponse, error)
	// InferAsync starts a request; after an error there is no response. A separate goroutine passes
	// each response to receive, which may block; the last one has Final set.
	InferAsync(ctx context.Context, request *InferRequest, receive func(*InferResponse)) error
	// InferStream executes a request and yields its responses, including those with Err set. A
	// model is ahead of the loop by its window at most. Leaving the loop cancels the request.
	InferStream(ctx context.Context, request *InferRequest) iter.Seq2[*InferResponse, error]

	// ModelReady reports whether a model serves in this version or, with LatestVersion, in any. An
	// unknown model is an error.
	ModelReady(ctx context.Context, model string, version int64) (bool, error)
	// Decoupled reports whether a model may send any number of responses.
	Decoupled(model string, version int64) (bool, error)
	// Load loads a model. A config (JSON) that is not "" and files, by path, override those of the
	// repository. It fails unless the server is in explicit control mode.
	Load(ctx context.Context, model, config string, files map[string][]byte) error
	// Unload begins to unload a model, and with dependents also the models that need it.
	Unload(ctx context.Context, model string, dependents bool) error
}
