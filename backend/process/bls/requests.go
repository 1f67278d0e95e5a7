package bls

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// maxRequests is how many requests of its own a stub may have under way.
const maxRequests = 16_384

// copyAside is up to how many bytes are copied by a goroutine that holds a
// channel's receive lock; more are copied by a goroutine of their own.
const copyAside = 1 << 20

// Session is what BLS requests ask of the life of the process whose model makes them.
type Session interface {
	// Execution returns the requests of the batch with this number: all of them while it
	// is executed, and those that it has left open after that. An error means that no
	// such batch has been handed over. The goroutine that reads the ring calls it for
	// each BLS request; 0 is the number of no batch.
	Execution(batch uint64) (requests []*infer.Request, executing bool, err error)
	// Traced returns the request in the process whose trace the text means, nil if there is
	// none any more.
	Traced(text []byte) *infer.Request
	// Handle acts on a frame of the process; callers hold the channel's receive lock.
	Handle(f ipc.Frame) error
	// Fail ends the life because of err. It does not wait.
	Fail(err error)
}

// Config says which model makes the requests, and through what.
type Config struct {
	Model   string
	Version int64
	Host    backend.Host
	// OneResponse is the text for a request that wants one response of the named model,
	// which may send any number.
	OneResponse func(model string) string

	Channel *ipc.Channel
	Decoder *frames.Decoder // used with the channel's receive lock held
	Encoder *frames.Encoder
	// Submit is the lock of Encoder. It is taken while a response is sent.
	Submit *sync.Mutex
	Pool   *shm.Pool // of the server's requests: inputs are copied there
	// Holder answers for responses that wait for the process; nil: who makes them does.
	Holder *budget.Holder
	// TakeBlocks counts bytes of copies in Pool, or takes them off again if there are fewer. It
	// may refuse more; nil: it counts nothing.
	TakeBlocks func(more int64) error
	// Devices says that there are devices, on which outputs may stay.
	Devices bool
	Log     zerolog.Logger
}

// Requests are the BLS requests that the model in one process has in flight.
type Requests struct {
	Config
	session Session

	body ipc.InferBody // reused; guarded by the receive lock
	// aside counts the goroutines that copy or ask, for the end of the life.
	aside sync.WaitGroup

	// callee are the requests of the process to which the latest of these was handed that
	// has not ended, nil if that is not known. Any goroutine reads it, without a lock.
	callee atomic.Pointer[Requests]
	// informed is when the process was sent a response last, in ns.
	informed atomic.Int64

	// mu is held for a few instructions; only a request's own lock is held outside it.
	mu     sync.Mutex
	closed bool
	all    map[uint64]*request
	tight  map[uint64]*request // streams that count in their windows
	copied int64               // bytes of the copies of inputs
}

// New makes the requests of a life that has none yet; Close ends them.
func New(config Config, session Session) *Requests {
	return &Requests{Config: config, session: session, all: make(map[uint64]*request)}
}

// Receive acts on INFER: the request goes to whichever model it names, from this
// goroutine if that does not take long. Callers hold the receive lock. An error ends the
// life.
func (b *Requests) Receive(f ipc.Frame) error {
	body := &b.body
	if err := ipc.ParseInfer(f.Body, body); err != nil {
		return err
	}
	q := &request{of: b, number: f.ID, batch: body.Batch, stream: body.Flags&ipc.InferStream != 0}
	q.cancellation.log = b.Log
	q.demand = int64(body.Demand)
	q.kept = q.first[:0]
	guess := body.Flags&ipc.InferGuess != 0
	if err := q.callersOf(body.Flags&ipc.InferHolding != 0 && !guess); err != nil {
		return err
	}
	if guess { // good enough to look for circles that stand still, not to cancel for
		q.batch = 0
	}
	err := q.read(body, &f)
	if f.Spilled {
		*body = ipc.InferBody{} // its lists may be long
	}
	if err != nil {
		q.releaseInputs()
		return err
	}
	if refusal := q.frame.Refusal(); refusal != nil {
		q.releaseInputs()
		return b.respond(f.ID, 0, infer.ErrorResponse(refusal))
	}
	ok, err := b.add(q)
	if err != nil {
		q.releaseInputs()
		return err
	}
	if !ok {
		q.releaseInputs()
		return b.respond(f.ID, 0, infer.ErrorResponse(infer.Errorf(infer.Unavailable,
			"a model may have %d inference requests of its own under way", maxRequests)))
	}
	for _, s := range q.unread {
		s.loosen()
	}
	q.unread = nil
	q.resolve()
	switch {
	case !q.waits():
		panics.Guard(b.Log, panics.Request, q.copyAndSubmit, q.failed)()
	case !b.goAside(q.copyAndSubmit, q.failed): // the life has ended
		q.releaseTarget()
		q.deliver(infer.ErrorResponse(ipc.ErrClosed))
	}
	return nil
}

// Steer acts on DEMAND and STOP_INFER. The request may have ended meanwhile. Callers hold
// the receive lock.
func (b *Requests) Steer(f ipc.Frame) error {
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

// add takes a request in; ok is false if there are too many.
func (b *Requests) add(q *request) (ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, ipc.ErrClosed
	}
	if b.all[q.number] != nil || q.number == 0 {
		return false, ipc.Broken("handle", "number %d of an inference is in use, or 0", q.number)
	}
	if len(b.all) >= maxRequests {
		return false, nil
	}
	b.all[q.number] = q // bound: maxRequests
	q.unread = b.joinLocked(q)
	return true, nil
}

// goAside runs f beside, and reports whether it does: not after the life's end. After a
// panic it calls failed.
func (b *Requests) goAside(f func(), failed func(error)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.aside.Go(panics.Guard(b.Log, panics.Request, f, failed))
	return true
}

// find returns a request that is under way, or nil.
func (b *Requests) find(number uint64) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[number]
}

// InFlight returns how many requests are in flight, and the bytes of the copies of their
// inputs.
func (b *Requests) InFlight() (requests int, copied int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all), b.copied
}

// Informed returns when the process was sent a response last, in ns of backend.Now; 0 if
// it never was.
func (b *Requests) Informed() int64 { return b.informed.Load() }

// reserve takes account of bytes that are to be copied, and refuses them if there are too many
// copies already.
func (b *Requests) reserve(n, limit int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > limit-b.copied {
		return infer.Errorf(infer.Unavailable, "the inputs of a model's own requests need copies of more than %d bytes", limit)
	}
	if b.TakeBlocks != nil {
		if err := b.TakeBlocks(n); err != nil {
			return err
		}
	}
	b.copied += n
	return nil
}

// Close ends all requests: they are cancelled, and the model hears nothing of their
// responses. It is called once nothing is received any more, and returns when no goroutine
// of theirs is left; models may go on with the requests.
func (b *Requests) Close() {
	b.mu.Lock()
	b.closed = true
	left := make([]*request, 0, len(b.all)) // bound: maxRequests
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

// CancelBatch cancels the requests that were made for a batch, given by the low
// 32 bits of its number, for which no client waits any more. What the model asks
// for afterwards, to clean up perhaps, is executed.
func (b *Requests) CancelBatch(batch uint64) {
	b.mu.Lock()
	var cancelled []*request
	for _, q := range b.all {
		if q.batch != 0 && q.batch&math.MaxUint32 == batch {
			cancelled = append(cancelled, q) // bound: maxRequests
		}
	}
	b.mu.Unlock()
	for _, q := range cancelled {
		q.cancel()
	}
}

// Execute notes those of a batch's requests that models have made: the process that
// makes b executes them. The caller is about to hand the batch over.
func (b *Requests) Execute(batch *backend.Batch) {
	for _, task := range batch.Tasks {
		if task.Request.Caller == nil {
			continue
		}
		if q, ok := task.Request.Caller.Backend.(*request); ok {
			q.at.Store(b)
			q.of.callee.Store(b)
		}
	}
}
