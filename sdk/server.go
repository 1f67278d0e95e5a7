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
	// Data must not change until the last response has arrived.
	Data []byte
	// Of, if not nil, is an input whose bytes, type and shape are passed on without a copy. Of the
	// fields above, only Name is used then, and Shape if it is not nil. The input's request must not
	// have been released yet, but may be released right after the call.
	Of *Input
}

// LatestVersion requests the highest ready version of a model.
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
	// From is the request on whose behalf this one is made: this one becomes part of its trace and is
	// cancelled with it. A request made in Execute with its context, or a derived one, belongs to that
	// batch without this field.
	From *Request
}

// InferResponse is a response of a model. The receiver releases it once. Until then, the Data of
// its outputs is valid and must not be written.
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

// NewInferResponse returns a copy of r that calls release when it is released. Only tests of
// backends call it.
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

// Output returns the output with the given name, or nil.
func (r *InferResponse) Output(name string) *Tensor {
	for i := range r.Outputs {
		if r.Outputs[i].Name == name {
			return &r.Outputs[i]
		}
	}
	return nil
}

// Server gives a backend access to the other models of its server. It is safe for concurrent use
// until Model.Close has returned.
//
// An execution that waits for a model occupies its instance meanwhile, so a model that calls itself
// needs a second instance. The server rejects requests that would wait for themselves.
type Server interface {
	// Infer executes a request to a model that is not decoupled, and returns its response or its
	// error. If ctx is cancelled, the request is cancelled and Infer returns.
	Infer(ctx context.Context, request *InferRequest) (*InferResponse, error)
	// InferAsync starts a request. If it returns an error, there is no response. Otherwise a separate
	// goroutine passes each response to receive, which may block; the last one has Final set.
	InferAsync(ctx context.Context, request *InferRequest, receive func(*InferResponse)) error
	// InferStream executes a request and yields its responses, including those with Err set. The model
	// can be ahead of the loop by at most its window. Leaving the loop cancels the request.
	InferStream(ctx context.Context, request *InferRequest) iter.Seq2[*InferResponse, error]

	// ModelReady reports whether a version of a model is ready; with LatestVersion, whether any is. An
	// unknown model is an error.
	ModelReady(ctx context.Context, model string, version int64) (bool, error)
	// Decoupled reports whether a model is decoupled, so that it may send any number of responses.
	Decoupled(model string, version int64) (bool, error)
	// Load loads a model. A non-empty config (JSON) and files, by path, override those of the
	// repository. It fails unless the server is in explicit control mode.
	Load(ctx context.Context, model, config string, files map[string][]byte) error
	// Unload starts to unload a model and, if dependents is true, also the models that depend on it.
	Unload(ctx context.Context, model string, dependents bool) error
}
