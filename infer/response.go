package infer

// Response is what a model makes of a request; a decoupled model may send any number.
type Response struct {
	Model      string
	Version    int64
	ID         string
	Parameters []Parameter
	Outputs    []Tensor
	Err        *Error // if set, Outputs and Parameters are empty
	// Empty marks the end of a stream that carries no response of its own: a final
	// flag which the model sent without a response.
	Empty bool
	Final bool // nothing follows for this request
	// Slot is, if not nil, the response's place in the window of its request: the
	// backend lets the model send another one when it is released. A response
	// with a slot need not be waited for by a Sender that is full of them.
	Slot Memory
	// Held is, if not nil, the memory of the response's strings, error and own fields. A response
	// that shares these with another one retains it.
	Held Memory
}

// Release gives up the response's references to its outputs' bytes, its slot and its own memory.
func (r *Response) Release() {
	if r.Slot != nil {
		r.Slot.Release()
	}
	if r.Held != nil {
		r.Held.Release()
	}
	for i := range r.Outputs {
		r.Outputs[i].Release()
	}
}

// ErrorResponse returns the final response that reports err.
func ErrorResponse(err error) *Response { return &Response{Err: AsError(err), Final: true} }
