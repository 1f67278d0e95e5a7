package infer

import "github.com/nereid-serving/nereid/infer/trace"

// Queued records in the request's trace that a scheduler has it since at, in ns of CLOCK_MONOTONIC.
// No input lies in foreign memory.
func (r *Request) Queued(at int64) {
	if r.Trace != nil {
		r.queued(at)
	}
}

func (r *Request) queued(at int64) {
	if r.Trace.Queued(at) {
		record(r.Trace, trace.QueueInput, r.Inputs)
	}
}

// Responded records a response in the request's trace.
func (r *Request) Responded(response *Response) {
	if r.Trace != nil {
		record(r.Trace, trace.BackendOutput, response.Outputs)
		r.Trace.Responded(response.Final)
	}
}

func record(t *trace.Trace, name trace.Name, tensors []Tensor) {
	if !t.WantsTensors() {
		return
	}
	for i := range tensors {
		x := &tensors[i]
		t.Tensor(name, x.Name, x.DataType.String(), x.Shape, x.Data)
	}
}
