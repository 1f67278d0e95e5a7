package process

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
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

// blsSession is what BLS requests ask of the life of the process whose model makes
// them. All methods but fail are called by the goroutine that holds the channel's
// receive lock, or by a goroutine that it has handed a request to.
type blsSession interface {
	// execution returns the requests of the batch with this number: all of them while it
	// is executed, and those that it has left open after that. An error means that no
	// such batch has been handed over.
	execution(batch uint64) (requests []*infer.Request, executing bool, err error)
	// decode fills in a request from the body of INFER, parameters apart; a refusal means
	// that bytes of its inputs cannot be had now, an error that the process broke the
	// protocol. The inputs are the caller's in each case.
	decode(body *ipc.InferBody, frame []byte, r *infer.Request) (refusal *infer.Error, err error)
	// sendResponse sends INFER_RESPONSE and releases the response. An error is the end of
	// the life.
	sendResponse(number uint64, r *infer.Response) error
	// handle acts on a frame of the process; callers hold the receive lock.
	handle(f ipc.Frame) error
	// fail ends the life because of err. It does not wait.
	fail(err error)
}

// blsCaller is the model that makes BLS requests, and what their tensors are copied into.
type blsCaller struct {
	model   string
	version int64
	host    backend.Host
	// oneResponse is the text for a request that wants one response of the named model,
	// which is decoupled.
	oneResponse func(model string) string
	channel     *ipc.Channel // of the process
	pool        *shm.Pool    // of the server's requests
	log         zerolog.Logger
}

// blsRequests are the BLS requests that the model in one process has in flight.
type blsRequests struct {
	blsCaller
	session blsSession

	body ipc.InferBody // reused; guarded by the receive lock
	// aside counts the goroutines that copy or ask, for the end of the life.
	aside sync.WaitGroup

	// callee are the requests of the process to which the latest of these was handed that
	// has not ended, nil if that is not known. Any goroutine reads it, without a lock.
	callee atomic.Pointer[blsRequests]
	// informed is when the process was sent a response last, in ns.
	informed atomic.Int64

	// mu is held for a few instructions; only a request's own lock is held outside it.
	mu     sync.Mutex
	closed bool
	all    map[uint64]*blsRequest
	tight  map[uint64]*blsRequest // streams that count in their windows
	copied int64                  // bytes of the copies of inputs
}

func newBLSRequests(caller blsCaller, session blsSession) *blsRequests {
	return &blsRequests{blsCaller: caller, session: session, all: make(map[uint64]*blsRequest)}
}

// blsRequest is one request that a model has made. Its inputs are held until its
// last response.
type blsRequest struct {
	of      *blsRequests
	number  uint64 // the process's
	batch   uint64 // in whose execution it was made, 0 if that is not known
	stream  bool   // any number of responses is wanted
	request infer.Request
	copied  int64
	unread  []*blsRequest               // to be loosened when this is begun
	at      atomic.Pointer[blsRequests] // of the process that executes it; nil if that is not known
	refusal error                       // what the request cannot be made for, found while it was read
	cancellation

	responses
}

// receive acts on INFER: the request goes to whichever model it names, from this
// goroutine if that does not take long.
func (b *blsRequests) receive(f ipc.Frame) error {
	body := &b.body
	if err := ipc.ParseInfer(f.Body, body); err != nil {
		return err
	}
	q := &blsRequest{of: b, number: f.ID, batch: body.Batch, stream: body.Flags&ipc.InferStream != 0}
	q.cancellation.log = b.log
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
	ok, err := b.add(q)
	if err != nil {
		q.releaseInputs()
		return err
	}
	if !ok {
		q.releaseInputs()
		return b.session.sendResponse(f.ID, infer.ErrorResponse(infer.Errorf(infer.Unavailable,
			"a model may have %d inference requests of its own under way", maxInferences)))
	}
	for _, s := range q.unread {
		s.loosen()
	}
	q.unread = nil
	if q.inArena() <= copyAside || !b.goAside(q.copyAndSubmit, q.failed) {
		boundary.Guard(b.log, boundary.Request, q.copyAndSubmit, q.failed)()
	}
	return nil
}

// add takes a request in; ok is false if there are too many.
func (b *blsRequests) add(q *blsRequest) (ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, ipc.ErrClosed
	}
	if b.all[q.number] != nil || q.number == 0 {
		return false, broke("handle", "number %d of an inference is in use, or 0", q.number)
	}
	if len(b.all) >= maxInferences {
		return false, nil
	}
	b.all[q.number] = q
	q.unread = b.joinLocked(q)
	return true, nil
}

// goAside runs f beside, and reports whether it does: not after the life's end. After a
// panic it calls failed.
func (b *blsRequests) goAside(f func(), failed func(error)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.aside.Go(boundary.Guard(b.log, boundary.Request, f, failed))
	return true
}

// find returns a request that is under way, or nil.
func (b *blsRequests) find(number uint64) *blsRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[number]
}

// reserve takes account of bytes that are to be copied; false if there are too
// many copies already.
func (b *blsRequests) reserve(n, limit int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > limit-b.copied {
		return false
	}
	b.copied += n
	return true
}

// close ends all requests: they are cancelled, and the model hears nothing of their
// responses. It is called once nothing is received any more.
func (b *blsRequests) close() {
	b.mu.Lock()
	b.closed = true
	left := make([]*blsRequest, 0, len(b.all))
	for _, q := range b.all {
		left = append(left, q)
	}
	b.mu.Unlock()
	for _, q := range left {
		q.cancel()
		q.forget()
	}
	b.aside.Wait()
}

// cancelBatch cancels the requests that were made for a batch, given by the low
// 32 bits of its number, for which no client waits any more. What the model asks
// for afterwards, to clean up perhaps, is executed.
func (b *blsRequests) cancelBatch(batch uint64) {
	b.mu.Lock()
	var cancelled []*blsRequest
	for _, q := range b.all {
		if q.batch != 0 && q.batch&math.MaxUint32 == batch {
			cancelled = append(cancelled, q)
		}
	}
	b.mu.Unlock()
	for _, q := range cancelled {
		q.cancel()
	}
}

// callersOf finds the execution that the request is made in.
func (q *blsRequest) callersOf(holding bool) error {
	b := q.of
	requests, executing, err := b.session.execution(q.batch)
	if err != nil {
		return err
	}
	q.request.Caller = infer.NewCaller(b.model, b.version, requests, holding && executing)
	q.request.Caller.Backend = q
	return nil
}

// read fills the request from its frame. Whatever is wrong with it, what the stub
// has lent is located, or it would not come back. An error is the stub's fault.
func (q *blsRequest) read(body *ipc.InferBody, frame []byte) error {
	b, r := q.of, &q.request
	r.Made = b.channel.Posted()
	refusal, err := b.session.decode(body, frame, r)
	if err != nil {
		return err
	}
	if refusal != nil {
		q.refusal = refusal
		return nil
	}
	if len(body.Parameters) > 0 {
		parameters, failure := frames.ParseParameters(body.Parameters)
		r.Parameters = parameters
		if failure != nil {
			q.refusal = q.prefixed(failure)
		}
	}
	return nil
}

// inArena counts the bytes of inputs that lie in the stub's own memory.
func (q *blsRequest) inArena() (n int) {
	for i := range q.request.Inputs {
		if _, ok := q.request.Inputs[i].Memory.(*shm.Extent); ok {
			n += len(q.request.Inputs[i].Data)
		}
	}
	return n
}

// copyAndSubmit copies what lies in the stub's own memory, which goes back to it
// at once, and hands the request over.
func (q *blsRequest) copyAndSubmit() {
	if err := q.copyInputs(); err != nil && q.refusal == nil {
		q.refusal = err
	}
	if q.refusal != nil {
		// In Triton's order the model comes first.
		if _, _, err := q.of.host.Decoupled(q.request.Model, q.request.Version); err != nil {
			q.refusal = q.prefixed(err)
		}
		q.deliver(infer.ErrorResponse(q.refusal))
		return
	}
	q.submit()
}

func (q *blsRequest) copyInputs() error {
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
			failure = q.copyInput(t, data, q.of.channel.MaxArena())
		}
		extent.Release()
	}
	return failure
}

func (q *blsRequest) copyInput(t *infer.Tensor, data []byte, limit int64) error {
	n := int64(len(data))
	if !q.of.reserve(n, limit) {
		return infer.Errorf(infer.Unavailable, "the inputs of a model's own requests need copies of more than %d bytes", limit)
	}
	q.copied += n
	block, err := frames.Copy(q.of.pool, data)
	if err != nil {
		return err
	}
	t.Data, t.Memory = block.Bytes(), block
	return nil
}

// submit checks what Triton's backend checks of the model that is called, and
// hands the request over.
func (q *blsRequest) submit() {
	decoupled, asks, err := q.of.host.Decoupled(q.request.Model, q.request.Version)
	switch {
	case err != nil:
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
func (q *blsRequest) failed(err error) { q.deliver(infer.ErrorResponse(q.prefixed(err))) }

// ask asks the model whether it is ready, which may take as long as it likes.
func (q *blsRequest) ask(decoupled bool) {
	ready, err := q.of.host.ModelReady(q, q.request.Model, q.request.Version)
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

func (q *blsRequest) hand(decoupled bool) {
	if q.Err() != nil { // the model has given it up
		q.deliver(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
		return
	}
	if decoupled && !q.stream {
		q.deliver(infer.ErrorResponse(q.prefixed(&infer.Error{
			Code: infer.Unsupported, Message: q.of.oneResponse(q.request.Model),
		})))
		return
	}
	if err := q.of.host.Submit(q, &q.request, q.deliver); err != nil {
		q.deliver(infer.ErrorResponse(q.prefixed(err)))
	}
}

// prefixed is how a caller learns that its request was not accepted. The code of
// the reason is kept.
func (q *blsRequest) prefixed(err error) error {
	reason := infer.AsError(err)
	return infer.Errorf(reason.Code, "Model %s - Error when running inference: %s", q.request.Model, reason.Message)
}

func (q *blsRequest) releaseInputs() {
	for i := range q.request.Inputs {
		q.request.Inputs[i].Release()
	}
	q.request.Inputs = nil
}

// execute notes those of a batch's requests that models have made: the process that
// makes b executes them. The caller is about to hand the batch over.
func (b *blsRequests) execute(batch *backend.Batch) {
	for _, task := range batch.Tasks {
		if task.Request.Caller == nil {
			continue
		}
		if q, ok := task.Request.Caller.Backend.(*blsRequest); ok {
			q.at.Store(b)
			q.of.callee.Store(b)
		}
	}
}

// ended takes a request out whose last response has been dealt with.
func (q *blsRequest) ended() {
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
}

// steer acts on DEMAND and STOP_INFER. The request may have ended meanwhile.
func (b *blsRequests) steer(f ipc.Frame) error {
	n, err := ipc.ParseWord(f.Kind, f.Body)
	if err != nil {
		return err
	}
	q := b.find(f.ID)
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
