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

// maxRequests is the number of BLS requests that a stub may have in flight.
const maxRequests = 16_384

// copyAside is the number of bytes up to which a goroutine copies with a channel's receive lock
// held. A separate goroutine copies more.
const copyAside = 1 << 20

// Session is the part of a process's life that its BLS requests use.
type Session interface {
	// Execution returns the requests of the batch with this number: all of them while it is
	// executed, and the open ones after that. It fails if the batch was never submitted. The
	// goroutine that reads the ring calls it for each BLS request; batch 0 does not exist.
	Execution(batch uint64) (requests []*infer.Request, executing bool, err error)
	// Traced returns the request in the process with this trace text, or nil if it has ended.
	Traced(text []byte) *infer.Request
	// Handle handles a frame of the process. The caller holds the channel's receive lock.
	Handle(f ipc.Frame) error
	// Fail ends the life because of err. It does not wait.
	Fail(err error)
}

// Config names the model that makes the requests, and the parts of its life that they use.
type Config struct {
	Model   string
	Version int64
	Host    backend.Host
	// OneResponse returns the error text for a request that accepts one response from the named
	// model, which may send any number.
	OneResponse func(model string) string

	Channel *ipc.Channel
	Decoder *frames.Decoder // used with the channel's receive lock held
	Encoder *frames.Encoder // locked while a response is sent
	Pool    *shm.Pool       // the server's pool for requests, into which inputs are copied
	// Holder is charged for responses that wait for the process; nil: the models that made them
	// are.
	Holder *budget.Holder
	// TakeBlocks counts bytes of copies in Pool, or removes them if negative. It may refuse more;
	// nil counts nothing.
	TakeBlocks func(more int64) error
	// Devices reports that the machine has devices, on which outputs may stay.
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

	// callee are the Requests of the process that executes the latest request still in flight; nil
	// if unknown. Any goroutine reads it without a lock.
	callee atomic.Pointer[Requests]
	// informed is the time of the latest response to the process, in ns.
	informed atomic.Int64

	// mu is held briefly; only a request's own lock is held around it.
	mu       sync.Mutex
	closed   bool
	all      map[uint64]*request
	windowed map[uint64]*request // streams that count in their windows
	copied   int64               // bytes of the copies of inputs
}

// New creates the Requests of a life; Close ends them.
func New(config Config, session Session) *Requests {
	return &Requests{Config: config, session: session, all: make(map[uint64]*request)}
}

// Receive handles INFER: it submits the request to the named model, on this goroutine unless that
// may take long. The caller holds the receive lock. An error ends the life.
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
	if guess { // good enough to detect deadlocks, not to cancel
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
		s.leaveWindow()
	}
	q.unread = nil
	panics.Guard(b.Log, panics.Request, q.start, q.failed)()
	return nil
}

// Control handles DEMAND and STOP_INFER. The request may have ended meanwhile. The caller holds the
// receive lock.
func (b *Requests) Control(f ipc.Frame) error {
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

// add enters a request; ok is false if the model has too many.
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

// goAside runs f in a goroutine and reports whether it does: not after the life's end. After a
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

// find returns a request in flight, or nil.
func (b *Requests) find(number uint64) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[number]
}

// InFlight returns the number of requests in flight, and the bytes of the copies of their inputs.
func (b *Requests) InFlight() (requests int, copied int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all), b.copied
}

// Informed returns the time of the latest response to the process, in ns of backend.Now; 0 without
// one.
func (b *Requests) Informed() int64 { return b.informed.Load() }

// reserve counts bytes that will be copied. It refuses them beyond the limit for copies.
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

// Close cancels all requests and drops their responses. It is called when nothing is received any
// more, and returns when none of their goroutines is left. The called models may continue.
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

// CancelBatch cancels the requests that were made in a batch for which no client waits any more,
// given by the low 32 bits of its number. Requests that the model makes afterwards, perhaps to
// clean up, are executed.
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

// Execute records that the process of b is about to execute the BLS requests of a batch. The caller
// is about to submit the batch.
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
