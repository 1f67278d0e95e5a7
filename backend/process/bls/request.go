package bls

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// request is one request that a model has made. Its inputs are held until its
// last response.
type request struct {
	of      *Requests
	number  uint64 // the process's
	batch   uint64 // in whose execution it was made, 0 if that is not known
	stream  bool   // any number of responses is wanted
	request infer.Request
	frame   frames.Kept // its own memory and that of its frame
	copied  int64
	unread  []*request               // to be loosened when this is begun
	at      atomic.Pointer[Requests] // of the process that executes it; nil if that is not known
	refusal error                    // what the request cannot be made for, found while it was read
	asked   bool                     // it has inputs on a device, and its maker is told whether they are taken
	takes   bool                     // they are
	fetched bool                     // such inputs are copied to the host on the way
	cancellation

	responses
}

// callersOf finds the execution that the request is made in.
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

// read fills the request from its frame. Whatever is wrong with it, what the stub
// has lent is located, or it would not come back. An error is the stub's fault.
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
	if refusal.Code != infer.Unavailable { // the request itself is wrong
		q.refusal = q.prefixed(refusal)
	}
	return nil
}

// perCaller is the bytes that a request takes for each request of the execution that makes it.
const perCaller = 16

// askDevices finds out whether inputs that lie on a device are taken there. Those of a request that is
// traced are not, but its maker need not learn of that.
func (q *request) askDevices() {
	for i := range q.request.Inputs {
		if cudaipc.Of(&q.request.Inputs[i]) != nil {
			q.asked, q.takes = true, q.of.Host.TakesDevices(q.request.Model, q.request.Version)
			q.fetched = !q.takes || q.request.Trace != nil
			return
		}
	}
}

// inArena counts the bytes of inputs that lie in the stub's own memory.
func (q *request) inArena() (n int) {
	for i := range q.request.Inputs {
		if t := &q.request.Inputs[i]; frames.InArena(t) {
			n += len(t.Data)
		}
	}
	return n
}

// copyAndSubmit copies what lies in the stub's own memory, which goes back to it
// at once, and hands the request over.
func (q *request) copyAndSubmit() {
	if err := q.copyInputs(); err != nil && q.refusal == nil {
		q.refusal = err
	}
	if q.refusal != nil {
		// In Triton's order the model comes first.
		if _, _, err := q.of.Host.Decoupled(q.request.Model, q.request.Version); err != nil {
			q.asked = false // as in submit
			q.refusal = q.prefixed(err)
		}
		q.deliver(infer.ErrorResponse(q.refusal))
		return
	}
	q.submit()
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

// submit checks what Triton's backend checks of the model that is called, and
// hands the request over.
func (q *request) submit() {
	decoupled, asks, err := q.of.Host.Decoupled(q.request.Model, q.request.Version)
	switch {
	case err != nil:
		q.asked = false // it is not known what the model takes when it is loaded
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	case asks:
		if !q.of.goAside(func() { q.ask(decoupled) }, q.failed) {
			q.deliver(infer.ErrorResponse(ipc.ErrClosed)) // which reaches no model
		}
	default:
		q.hand(decoupled)
	}
}

// failed answers a request over which something has panicked.
func (q *request) failed(err error) { q.deliver(infer.ErrorResponse(q.prefixed(err))) }

// ask asks the model whether it is ready, which may take as long as it likes.
func (q *request) ask(decoupled bool) {
	ready, err := q.of.Host.ModelReady(q, q.request.Model, q.request.Version)
	switch {
	case err != nil:
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	case !ready:
		q.deliver(infer.ErrorResponse(q.prefixed(infer.Errorf(infer.Unavailable,
			"Failed for execute the inference request. Model '%s' is not ready.", q.request.Model))))
	default:
		q.hand(decoupled)
	}
}

func (q *request) hand(decoupled bool) {
	if q.Err() != nil { // the model has given it up
		q.deliver(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
		return
	}
	if decoupled && !q.stream {
		q.deliver(infer.ErrorResponse(q.prefixed(&infer.Error{
			Code: infer.Unsupported, Message: q.of.OneResponse(q.request.Model),
		})))
		return
	}
	if err := q.of.Host.Submit(q, &q.request, q.deliver); err != nil {
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	}
}

// prefixed is how a caller learns that its request was not accepted. The code of
// the reason is kept.
func (q *request) prefixed(err error) error {
	reason := infer.AsError(err)
	return infer.Errorf(reason.Code, "Model %s - Error when running inference: %s", q.request.Model, reason)
}

// releaseInputs gives up the inputs and the request's own memory.
func (q *request) releaseInputs() {
	for i := range q.request.Inputs {
		q.request.Inputs[i].Release()
	}
	q.request.Inputs = nil
	q.frame.Release()
}

// ended takes a request out whose last response has been dealt with.
func (q *request) ended() {
	b := q.of
	if at := q.at.Load(); at != nil {
		b.callee.CompareAndSwap(at, nil)
	}
	q.releaseInputs()
	b.mu.Lock()
	delete(b.all, q.number)
	delete(b.tight, q.number)
	b.copied -= q.copied
	b.mu.Unlock()
	if b.TakeBlocks != nil {
		_ = b.TakeBlocks(-q.copied) // which is never refused
	}
}
