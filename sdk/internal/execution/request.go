package execution

import (
	"context"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/infer/trace"
)

// Flags of Release.
const (
	ReleaseAll        uint32 = 1
	ReleaseReschedule uint32 = 2
)

// Request is the author's view of a request. sdk.Request documents its methods.
type Request struct {
	entry   *entry
	request *infer.Request
	task    context.Context // ends when no client waits for the answer any more
	inputs  []Input
	few     [2]Input // inputs begins here
	gone    bool     // it has been released, and its inputs have no bytes
	begun   bool     // first is in use; guarded by the batch's mu
	first   Response
}

// Input is one input of a Request.
type Input struct {
	tensor *infer.Tensor
	of     *Request
}

// Tensor returns the input as received. Its bytes are valid until the release of its request.
func (in *Input) Tensor() *infer.Tensor { return in.tensor }

// Data returns the input's bytes, or nil if its request has been released.
func (in *Input) Data() []byte {
	if in.of.gone {
		return nil
	}
	return in.tensor.Data
}

// Batch returns the batch of the request.
func (r *Request) Batch() *Batch { return r.entry.batch }

// Infer returns the request as received. The caller must not change it.
func (r *Request) Infer() *infer.Request { return r.request }

// Context returns a context that is cancelled when no client waits for the response any more.
func (r *Request) Context() context.Context { return r.task }

// Cancelled reports whether no client waits for the response any more.
func (r *Request) Cancelled() bool { return r.task.Err() != nil }

// Trace returns the number and the W3C context of the request's trace; false without a trace.
func (r *Request) Trace() (id uint64, context string, ok bool) {
	text := r.text()
	number, context := text, ""
	if at := strings.IndexByte(text, '{'); at >= 0 {
		number, context = text[:at], text[at:]
	}
	id, err := strconv.ParseUint(number, 10, 64)
	return id, context, err == nil
}

// text identifies the request's trace; "" without a trace.
func (r *Request) text() string {
	if of := r.entry.batch.tracker.Trace; of != nil {
		return of(r.request)
	}
	return r.request.Trace.Text()
}

// Activity records an activity of the author in the request's trace; at is 0 for now.
func (r *Request) Activity(name string, at int64) error {
	if r.text() == "" {
		return nil
	}
	if !trace.ActivityName(name) {
		return infer.Errorf(infer.InvalidArg, "the name of a trace activity is %q, want 1 to 256 bytes of UTF-8", name[:min(len(name), 300)])
	}
	e, b := r.entry, r.entry.batch
	b.mu.Lock()
	released := e.released
	b.mu.Unlock()
	if released {
		const fault = "a trace activity was reported after the release of the request"
		b.tracker.fault(r.request, fault)
		return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
	}
	if at == 0 {
		at = backend.Now()
	}
	if take := b.tracker.Activity; take != nil {
		take(r.request, name, at)
	} else {
		r.request.Trace.Activity(name, at)
	}
	return nil
}

// CorrelationNumber returns the correlation id if it is a number, or 0 without a correlation id.
func (r *Request) CorrelationNumber() (uint64, error) {
	if r.request.Correlation.Text != "" {
		return 0, infer.Errorf(infer.InvalidArg, "%scorrelation ID in request is not an unsigned int", r.request.LogPrefix())
	}
	return r.request.Correlation.Number, nil
}

// CorrelationText returns the correlation id if it is a string.
func (r *Request) CorrelationText() (string, error) {
	if r.request.Correlation.Text == "" {
		return "", infer.Errorf(infer.InvalidArg, "%scorrelation ID in request is not a string", r.request.LogPrefix())
	}
	return r.request.Correlation.Text, nil
}

// Parameter returns the parameter at an index.
func (r *Request) Parameter(i int) (infer.Parameter, error) {
	if i < 0 || i >= len(r.request.Parameters) {
		return infer.Parameter{}, infer.Errorf(infer.InvalidArg, "out of bounds index %d: request has %d parameters", i, len(r.request.Parameters))
	}
	return r.request.Parameters[i], nil
}

// InputCount returns the number of inputs.
func (r *Request) InputCount() int { return len(r.inputs) }

// Input returns the input of the given name.
func (r *Request) Input(name string) (*Input, error) {
	for i := range r.inputs {
		if r.inputs[i].tensor.Name == name {
			return &r.inputs[i], nil
		}
	}
	return nil, infer.Errorf(infer.InvalidArg, "%sunknown request input name %s", r.request.LogPrefix(), name)
}

// InputAt returns the input at an index.
func (r *Request) InputAt(i int) (*Input, error) {
	if i < 0 || i >= len(r.inputs) {
		return nil, infer.Errorf(infer.InvalidArg, "%sout of bounds index %d: request has %d inputs", r.request.LogPrefix(), i, len(r.inputs))
	}
	return &r.inputs[i], nil
}

// NewResponse creates a response.
func (r *Request) NewResponse() (*Response, error) {
	b := r.entry.batch
	b.mu.Lock()
	over := r.entry.answered || r.entry.again
	own := !r.begun
	r.begun = true
	b.mu.Unlock()
	if over {
		return nil, infer.Errorf(infer.Internal, "%sthe request has had its final response, or has been given back", r.request.LogPrefix())
	}
	p := &r.first
	if !own {
		p = &Response{}
	}
	p.request = r
	p.up.Outputs = p.tensors[:0]
	return p, nil
}

// Factory returns a factory of responses that outlives the request.
func (r *Request) Factory() *Factory { return &Factory{request: r} }

// Release ends the author's use of the request.
func (r *Request) Release(flags uint32) error {
	e, b := r.entry, r.entry.batch
	c := b.tracker
	b.mu.Lock()
	var fault string
	switch {
	case flags != ReleaseAll && flags != ReleaseReschedule:
		b.mu.Unlock()
		return infer.Errorf(infer.InvalidArg, "flags of a release are %#x, want 1 (all) or 2 (reschedule)", flags)
	case e.released:
		fault = "the request was released twice"
	case flags == ReleaseReschedule && !c.Iterative:
		b.mu.Unlock()
		return infer.Errorf(infer.Internal, "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.")
	case flags == ReleaseReschedule && e.answered:
		fault = "the request was released in order to get it again, though it had its final response"
	}
	if fault != "" {
		b.mu.Unlock()
		c.fault(r.request, fault)
		return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
	}
	e.again = flags == ReleaseReschedule
	b.giveUpLocked(e)
	r.gone = true
	if e.completeLocked() {
		c.forgetLocked(e)
	}
	conclude := b.concludesLocked()
	b.mu.Unlock()
	if conclude {
		b.conclude(0)
	}
	return nil
}

// Report records the statistics of the request: its success and four times.
func (r *Request) Report(ok bool, start, computeStart, computeEnd, end int64) error {
	if start > computeStart || computeStart > computeEnd || computeEnd > end {
		return infer.Errorf(infer.InvalidArg, "times of an execution are %d, %d, %d and %d, want them in order", start, computeStart, computeEnd, end)
	}
	e, b := r.entry, r.entry.batch
	b.mu.Lock()
	if e.released {
		b.mu.Unlock()
		const fault = "statistics were reported after the release of the request"
		b.tracker.fault(r.request, fault)
		return infer.Errorf(infer.Internal, "%s%s", r.request.LogPrefix(), fault)
	}
	defer b.mu.Unlock()
	e.counted, e.failed = true, !ok
	if b.timed == byClock {
		b.timed = byRequest
		b.setTimesLocked(start, computeStart, computeEnd, end)
	}
	return nil
}

// Report records the times of the current batch.
func (c *Tracker) Report(start, computeStart, computeEnd, end int64) error {
	if start > computeStart || computeStart > computeEnd || computeEnd > end {
		return infer.Errorf(infer.InvalidArg, "times of an execution are %d, %d, %d and %d, want them in order", start, computeStart, computeEnd, end)
	}
	b := c.Current()
	if b == nil {
		return infer.Errorf(infer.Internal, "statistics of a batch were reported while none is executed")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timed = byBatch
	b.setTimesLocked(start, computeStart, computeEnd, end)
	return nil
}

// setTimesLocked sets the times of the report, in order and not before the arrival of the batch.
func (b *Batch) setTimesLocked(start, computeStart, computeEnd, end int64) {
	t := &b.times
	t[0] = max(start, b.begun)
	t[1] = max(computeStart, t[0])
	t[2] = max(computeEnd, t[1])
	t[3] = max(end, t[2])
	if !b.executing { // else Returned bounds them
		b.boundTimesLocked(backend.Now())
	}
}

// boundTimesLocked limits the times of the report to last.
func (b *Batch) boundTimesLocked(last int64) {
	for i := range b.times {
		b.times[i] = min(b.times[i], last)
	}
}
