package bls

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// request is one BLS request. Its inputs are held until its last response.
type request struct {
	of      *Requests
	number  uint64 // the process's
	batch   uint64 // in whose execution it was made; 0 if unknown
	stream  bool   // the model accepts any number of responses
	request infer.Request
	frame   frames.Kept // its own memory and that of its frame
	copied  int64
	unread  []*request               // streams that leave their windows when this request begins
	at      atomic.Pointer[Requests] // of the process that executes it; nil if unknown
	refusal error                    // why the request cannot be made, found while it was read
	asked   bool                     // it has inputs on a device, and its caller is told whether they stay there
	takes   bool                     // they do
	fetched bool                     // inputs on a device are copied to the host
	target  backend.Target           // the version it calls; nil before resolve, after it failed, and after copyAndSubmit
	cancellation

	responses
}

// callersOf finds the execution in which the request is made.
func (q *request) callersOf(holding bool) error {
	b := q.of
	requests, executing, err := b.session.Execution(q.batch)
	if err != nil {
		return err
	}
	q.request.Caller = infer.NewCaller(b.Model, b.Version, requests, holding && executing)
	q.request.Caller.Backend = q
	return nil
}

// read fills the request from its frame. Even if the request is invalid, everything that the stub
// has lent is located, so that it can be returned. An error is the stub's fault.
func (q *request) read(body *ipc.InferBody, f *ipc.Frame) error {
	b, r := q.of, &q.request
	r.Made = b.Channel.Posted()
	if b.Devices && body.Memory != ipc.PreferCPU {
		r.Places = infer.Anywhere
	}
	if len(body.Trace) > 0 {
		if parent := b.session.Traced(body.Trace); parent != nil {
			r.Trace = parent.Trace.Child()
		}
	}
	refusal, err := b.Decoder.Request(body, f, r, &q.frame, perCaller*int64(len(r.Caller.Requests)))
	if err != nil || refusal == nil {
		return err
	}
	q.refusal = refusal
	if refusal.Code != infer.Unavailable { // the request itself is invalid
		q.refusal = q.prefixed(refusal)
	}
	return nil
}

// perCaller is the memory of a request, in bytes, for each request of its calling execution.
const perCaller = 16

// start executes the request, in a goroutine if that may take long.
func (q *request) start() {
	q.resolve()
	switch {
	case !q.waits():
		q.copyAndSubmit()
	case !q.of.goAside(q.copyAndSubmit, q.failed): // the life has ended
		q.failed(ipc.ErrClosed)
	}
}

// resolve finds and holds the version that is called. As in Triton, an unknown model is reported
// before anything that is wrong with the request itself.
func (q *request) resolve() {
	target, err := q.of.Host.Target(q.request.Model, q.request.Version)
	if err != nil {
		q.refusal = q.prefixed(err)
		return
	}
	q.target = target
	q.askDevices()
}

// releaseTarget ends the hold on the version, if there is one.
func (q *request) releaseTarget() {
	if q.target != nil {
		q.target.Release()
		q.target = nil
	}
}

// askDevices finds out whether inputs on a device stay there. A traced request's inputs are copied
// to the host in any case, but the caller is not told so.
func (q *request) askDevices() {
	for i := range q.request.Inputs {
		if cudaipc.Of(&q.request.Inputs[i]) != nil {
			q.asked, q.takes = true, q.target.TakesDevices()
			q.fetched = !q.takes || q.request.Trace != nil
			return
		}
	}
}

// waits reports whether copyAndSubmit may take long: it copies much, it copies from a device, which
// is done by another process, or it asks the model whether it is ready.
func (q *request) waits() bool {
	return q.inArena() > copyAside || q.fetched || q.target != nil && q.target.AsksReady()
}

// inArena counts the bytes of inputs in the stub's arena.
func (q *request) inArena() (n int) {
	for i := range q.request.Inputs {
		if t := &q.request.Inputs[i]; frames.InArena(t) {
			n += len(t.Data)
		}
	}
	return n
}

// copyAndSubmit copies the inputs that lie in the stub's arena, gives these back to the stub at
// once, and submits the request.
func (q *request) copyAndSubmit() {
	defer q.releaseTarget()
	err := q.copyInputs()
	if q.refusal != nil {
		err = q.refusal
	}
	if err == nil {
		err = q.submit()
	}
	if err != nil {
		q.deliver(infer.ErrorResponse(err))
	}
}

func (q *request) copyInputs() error {
	var failure error
	for i := range q.request.Inputs {
		t := &q.request.Inputs[i]
		if !frames.InArena(t) {
			continue
		}
		data, lent := t.Data, t.Memory
		t.Data, t.Memory = nil, nil
		switch {
		case failure != nil || q.refusal != nil:
		case len(data) <= ipc.MaxInline:
			t.Data = append([]byte(nil), data...) // bound: charged with the frame
		default:
			failure = q.copyInput(t, data, q.of.Channel.MaxArena())
		}
		lent.Release()
	}
	return failure
}

func (q *request) copyInput(t *infer.Tensor, data []byte, limit int64) error {
	n := int64(len(data))
	if err := q.of.reserve(n, limit); err != nil {
		return err
	}
	q.copied += n
	block, err := frames.Copy(q.of.Pool, data)
	if err != nil {
		return err
	}
	t.Data, t.Memory = block.Bytes(), block
	return nil
}

// submit makes the checks of Triton's backend and passes the request to the version that is called.
// An error is for the caller.
func (q *request) submit() error {
	if q.target.AsksReady() {
		if err := q.target.Ready(q); err != nil {
			q.of.Log.Debug().Str("model", q.request.Model).Err(err).Msg("model is not ready for a BLS request")
			return q.prefixed(infer.Errorf(infer.Unavailable,
				"Failed for execute the inference request. Model '%s' is not ready.", q.request.Model))
		}
	}
	if q.Err() != nil { // the model no longer wants it
		return &infer.Error{Code: infer.Cancelled}
	}
	if q.target.Decoupled() && !q.stream {
		return q.prefixed(&infer.Error{Code: infer.Unsupported, Message: q.of.OneResponse(q.request.Model)})
	}
	if err := q.target.Submit(q, &q.request, q.deliver); err != nil {
		return q.prefixed(err)
	}
	return nil
}

// failed answers a request whose handling has panicked, or whose life has ended.
func (q *request) failed(err error) {
	q.releaseTarget()
	q.deliver(infer.ErrorResponse(q.prefixed(err)))
}

// prefixed returns the error for a request that was not accepted. It keeps the code of the reason.
func (q *request) prefixed(err error) error {
	reason := infer.AsError(err)
	return infer.Errorf(reason.Code, "Model %s - Error when running inference: %s", q.request.Model, reason)
}

// releaseInputs releases the inputs and the request's own memory.
func (q *request) releaseInputs() {
	for i := range q.request.Inputs {
		q.request.Inputs[i].Release()
	}
	q.request.Inputs = nil
	q.frame.Release()
}

// ended removes a request whose last response has been handled.
func (q *request) ended() {
	b := q.of
	if at := q.at.Load(); at != nil {
		b.callee.CompareAndSwap(at, nil)
	}
	q.releaseInputs()
	b.mu.Lock()
	delete(b.all, q.number)
	delete(b.windowed, q.number)
	b.copied -= q.copied
	b.mu.Unlock()
	if b.TakeBlocks != nil {
		_ = b.TakeBlocks(-q.copied) // a reduction is never refused
	}
}
