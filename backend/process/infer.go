package process

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// maxInferences is how many requests of its own a stub may have under way.
const maxInferences = 16_384

// copyAside is up to how many bytes are copied by a goroutine that holds a
// channel's receive lock; more are copied by a goroutine of their own.
const copyAside = 1 << 20

// inferences are the requests that a stub's model has made (BLS).
type inferences struct {
	body ipc.InferBody // reused; guarded by the receive lock
	// aside counts the goroutines that copy or ask, for the end of the life.
	aside sync.WaitGroup

	// callee is where the latest of them was handed over that has not ended, nil if
	// that is not known. informed is when the stub has been given an answer last, ns.
	callee   atomic.Pointer[life]
	informed atomic.Int64

	mu     sync.Mutex
	closed bool
	all    map[uint64]*inference
	tight  map[uint64]*inference // streams that count in their windows
	copied int64                 // bytes of the copies of inputs
}

func (i *inferences) open() { i.all = make(map[uint64]*inference) }

// inference is one request that a model has made. Its inputs are held until its
// last response.
type inference struct {
	life    *life
	number  uint64 // the stub's
	batch   uint64 // in whose execution it was made, 0 if that is not known
	stream  bool   // any number of responses is wanted
	request infer.Request
	copied  int64
	unread  []*inference         // to be loosened when this is begun
	at      atomic.Pointer[life] // whose stub executes it; nil if that is not known
	refusal error                // what the request cannot be made for, found while it was read
	cancellation

	responses
}

// requested acts on INFER: the request goes to whichever model it names, from this
// goroutine if that does not take long.
func (l *life) requested(f ipc.Frame) error {
	body := &l.infers.body
	if err := ipc.ParseInfer(f.Body, body); err != nil {
		return err
	}
	if body.Batch != 0 {
		l.in.await.thought(l.channel.Posted() - max(l.infers.informed.Load(), l.handed.Load()))
	}
	q := &inference{life: l, number: f.ID, batch: body.Batch, stream: body.Flags&ipc.InferStream != 0}
	q.cancellation.log = l.in.log
	q.demand = int64(body.Demand)
	q.kept = q.first[:0]
	guess := body.Flags&ipc.InferGuess != 0
	if err := q.callersOf(body.Flags&ipc.InferHolding != 0 && !guess); err != nil {
		return err
	}
	if guess { // good enough to look for circles that stand still, not to cancel for
		q.batch = 0
	}
	if err := q.read(body, f.Body); err != nil {
		q.releaseInputs()
		return err
	}
	ok, err := l.infers.add(q)
	if err != nil {
		q.releaseInputs()
		return err
	}
	if !ok {
		q.releaseInputs()
		return l.sendResponse(f.ID, infer.ErrorResponse(infer.Errorf(infer.Unavailable,
			"a model may have %d inference requests of its own under way", maxInferences)))
	}
	for _, s := range q.unread {
		s.loosen()
	}
	q.unread = nil
	if q.inArena() <= copyAside || !l.infers.goAside(l.in.log, q.copyAndSubmit, q.failed) {
		boundary.Guard(l.in.log, boundary.Request, q.copyAndSubmit, q.failed)()
	}
	return nil
}

// add takes a request in; ok is false if there are too many.
func (i *inferences) add(q *inference) (ok bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false, ipc.ErrClosed
	}
	if i.all[q.number] != nil || q.number == 0 {
		return false, broke("handle", "number %d of an inference is in use, or 0", q.number)
	}
	if len(i.all) >= maxInferences {
		return false, nil
	}
	i.all[q.number] = q
	q.unread = i.joinLocked(q)
	return true, nil
}

// goAside runs f beside, and reports whether it does: not after the life's end. After a
// panic it calls failed.
func (i *inferences) goAside(log zerolog.Logger, f func(), failed func(error)) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.aside.Go(boundary.Guard(log, boundary.Request, f, failed))
	return true
}

// find returns a request that is under way, or nil.
func (i *inferences) find(number uint64) *inference {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[number]
}

// reserve takes account of bytes that are to be copied; false if there are too
// many copies already.
func (i *inferences) reserve(n, limit int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n > limit-i.copied {
		return false
	}
	i.copied += n
	return true
}

// close ends all requests: they are cancelled, and the model hears nothing of their
// responses. It is called once nothing is received any more.
func (i *inferences) close() {
	i.mu.Lock()
	i.closed = true
	left := make([]*inference, 0, len(i.all))
	for _, q := range i.all {
		left = append(left, q)
	}
	i.mu.Unlock()
	for _, q := range left {
		q.cancel()
		q.forget()
	}
	i.aside.Wait()
}

// cancelBatch cancels the requests that were made for a batch, given by the low
// 32 bits of its number, for which no client waits any more. What the model asks
// for afterwards, to clean up perhaps, is executed.
func (i *inferences) cancelBatch(batch uint64) {
	i.mu.Lock()
	var cancelled []*inference
	for _, q := range i.all {
		if q.batch != 0 && q.batch&math.MaxUint32 == batch {
			cancelled = append(cancelled, q)
		}
	}
	i.mu.Unlock()
	for _, q := range cancelled {
		q.cancel()
	}
}

// callersOf finds the execution that the request is made in.
func (q *inference) callersOf(holding bool) error {
	l := q.life
	in := l.in
	var tasks []*backend.Task
	in.mu.Lock()
	if q.batch > l.number {
		last := l.number
		in.mu.Unlock()
		return broke("handle", "INFER for batch %d, the last one is %d", q.batch, last)
	}
	if at := l.findLocked(q.batch); at >= 0 {
		tasks = l.inside[at].batch.Tasks
	} else {
		tasks = l.openOfLocked(q.batch)
		holding = false
	}
	in.mu.Unlock()
	requests := make([]*infer.Request, len(tasks))
	for i, task := range tasks {
		requests[i] = task.Request
	}
	q.request.Caller = infer.NewCaller(in.model.env.Name, in.model.env.Version, requests, holding)
	q.request.Caller.Backend = q
	return nil
}

// read fills the request from its frame. Whatever is wrong with it, what the stub
// has lent is located, or it would not come back. An error is the stub's fault.
func (q *inference) read(body *ipc.InferBody, frame []byte) error {
	l, r := q.life, &q.request
	r.Model, r.Version, r.ID = string(body.Model), body.Version, string(body.ID)
	r.Flags, r.TimeoutMicros = body.Head.Flags, body.Head.Timeout
	r.Made = l.channel.Posted()
	if body.Head.CorrelKind == ipc.CorrelationText {
		r.Correlation.Text = string(body.CorrelText)
	} else {
		r.Correlation.Number = body.Head.Correlation
	}
	if len(body.Inputs) > 0 {
		r.Inputs = make([]infer.Tensor, 0, len(body.Inputs))
	}
	for i := range body.Inputs {
		d := &body.Inputs[i]
		t, own, err := l.tensor(d, frame, 1)
		if err != nil {
			return err
		}
		if own != nil {
			q.refusal = own
		}
		r.Inputs = append(r.Inputs, t)
	}
	if n := len(body.Outputs) / 2; n > 0 {
		r.Outputs = make([]string, n)
		for i := range r.Outputs {
			var err error
			if r.Outputs[i], err = l.nameOf(body.OutputName(i)); err != nil {
				return err
			}
		}
	}
	if len(body.Parameters) > 0 && q.refusal == nil {
		parameters, failure := parseParameters(body.Parameters)
		r.Parameters = parameters
		if failure != nil {
			q.refusal = q.prefixed(failure)
		}
	}
	return nil
}

// inArena counts the bytes of inputs that lie in the stub's own memory.
func (q *inference) inArena() (n int) {
	for i := range q.request.Inputs {
		if _, ok := q.request.Inputs[i].Memory.(*shm.Extent); ok {
			n += len(q.request.Inputs[i].Data)
		}
	}
	return n
}

// copyAndSubmit copies what lies in the stub's own memory, which goes back to it
// at once, and hands the request over.
func (q *inference) copyAndSubmit() {
	if err := q.copyInputs(); err != nil && q.refusal == nil {
		q.refusal = err
	}
	if q.refusal != nil {
		// In Triton's order the model comes first.
		if _, _, err := q.life.in.model.env.Host.Decoupled(q.request.Model, q.request.Version); err != nil {
			q.refusal = q.prefixed(err)
		}
		q.deliver(infer.ErrorResponse(q.refusal))
		return
	}
	q.submit()
}

func (q *inference) copyInputs() error {
	l := q.life
	var failure error
	for i := range q.request.Inputs {
		t := &q.request.Inputs[i]
		extent, ok := t.Memory.(*shm.Extent)
		if !ok {
			continue
		}
		data := t.Data
		t.Data, t.Memory = nil, nil
		switch {
		case failure != nil || q.refusal != nil:
		case len(data) <= ipc.MaxInline:
			t.Data = append([]byte(nil), data...)
		default:
			failure = q.copyInput(t, data, l.channel.MaxArena())
		}
		extent.Release()
	}
	return failure
}

func (q *inference) copyInput(t *infer.Tensor, data []byte, limit int64) error {
	n := int64(len(data))
	if !q.life.infers.reserve(n, limit) {
		return infer.Errorf(infer.Unavailable, "the inputs of a model's own requests need copies of more than %d bytes", limit)
	}
	q.copied += n
	block, err := q.life.encoder.pool.Alloc(len(data))
	if err != nil {
		return exhausted(q.life.encoder.pool, err)
	}
	copy(block.Bytes(), data)
	t.Data, t.Memory = block.Bytes(), block
	return nil
}

// submit checks what Triton's backend checks of the model that is called, and
// hands the request over.
func (q *inference) submit() {
	host := q.life.in.model.env.Host
	decoupled, asks, err := host.Decoupled(q.request.Model, q.request.Version)
	switch {
	case err != nil:
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	case asks:
		if !q.life.infers.goAside(q.life.in.log, func() { q.ask(decoupled) }, q.failed) {
			q.deliver(infer.ErrorResponse(ipc.ErrClosed)) // which reaches no model
		}
	default:
		q.hand(decoupled)
	}
}

// failed answers a request over which something has panicked.
func (q *inference) failed(err error) { q.deliver(infer.ErrorResponse(q.prefixed(err))) }

// ask asks the model whether it is ready, which may take as long as it likes.
func (q *inference) ask(decoupled bool) {
	ready, err := q.life.in.model.env.Host.ModelReady(q, q.request.Model, q.request.Version)
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

func (q *inference) hand(decoupled bool) {
	if q.Err() != nil { // the model has given it up
		q.deliver(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
		return
	}
	if decoupled && !q.stream {
		q.deliver(infer.ErrorResponse(q.prefixed(&infer.Error{
			Code: infer.Unsupported, Message: q.life.in.model.program.Text(OneResponseWanted, q.request.Model),
		})))
		return
	}
	if err := q.life.in.model.env.Host.Submit(q, &q.request, q.deliver); err != nil {
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	}
}

// prefixed is how a caller learns that its request was not accepted. The code of
// the reason is kept.
func (q *inference) prefixed(err error) error {
	reason := infer.AsError(err)
	return infer.Errorf(reason.Code, "Model %s - Error when running inference: %s", q.request.Model, reason.Message)
}

func (q *inference) releaseInputs() {
	for i := range q.request.Inputs {
		q.request.Inputs[i].Release()
	}
	q.request.Inputs = nil
}

// isCalledBy tells those whose models have made requests of a batch that this
// life executes them.
func (l *life) isCalledBy(b *backend.Batch) {
	for _, task := range b.Tasks {
		if task.Request.Caller == nil {
			continue
		}
		if q, ok := task.Request.Caller.Backend.(*inference); ok {
			q.at.Store(l)
			q.life.infers.callee.Store(l)
		}
	}
}

// ended takes a request out whose last response has been dealt with.
func (q *inference) ended() {
	if l := q.at.Load(); l != nil {
		q.life.infers.callee.CompareAndSwap(l, nil)
	}
	q.releaseInputs()
	i := &q.life.infers
	i.mu.Lock()
	delete(i.all, q.number)
	delete(i.tight, q.number)
	i.copied -= q.copied
	i.mu.Unlock()
}

// demanded acts on DEMAND and STOP_INFER. The request may have ended meanwhile.
func (l *life) demanded(f ipc.Frame) error {
	n, err := ipc.ParseWord(f.Kind, f.Body)
	if err != nil {
		return err
	}
	q := l.infers.find(f.ID)
	switch {
	case q == nil:
	case f.Kind == ipc.Demand:
		q.grant(n)
	case n == ipc.StopForget:
		q.forget()
		q.cancel()
	default:
		q.cancel()
	}
	return nil
}
