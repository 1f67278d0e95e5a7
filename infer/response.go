package infer

// Response is a model's response to a request; a decoupled model may send any number.
type Response struct {
	Model      string
	Version    int64
	ID         string
	Parameters []Parameter
	Outputs    []Tensor
	Err        *Error // if set, Outputs and Parameters are empty
	// Empty marks a final flag that the model sent without a response.
	Empty bool
	Final bool // the last response of its request
	// Slot, if not nil, is the response's slot in the window of its request. Its release allows the
	// model to send another response. A Sender with too many responses need not wait if they have
	// slots.
	Slot Memory
	// Held, if not nil, is the memory of the response's strings and error. A response that shares
	// them retains it.
	Held Memory
}

// Release releases the outputs, the slot and the memory of the response.
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

// ErrorResponse returns a final response with err.
func ErrorResponse(err error) *Response { return &Response{Err: AsError(err), Final: true} }
