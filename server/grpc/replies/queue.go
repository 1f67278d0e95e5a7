package replies

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
)

const (
	// keptReplies is how many replies of a stream may wait as they are, with
	// the memory that their models have lent.
	keptReplies = 8
	// copiedBytes is the most bytes of a reply that are copied at once when it has
	// to wait behind others. Larger ones are copied if there is a reason for it:
	// nothing has been taken off the stream for a moment.
	copiedBytes = 64 << 10
	moment      = 100 * time.Millisecond
)

var (
	errStalled = status.Error(codes.ResourceExhausted, "the client does not read the responses of its stream")
	errFull    = status.Error(codes.ResourceExhausted, "the server has no memory left for the stream")
	// ErrGone ends the stream of a client that has disconnected.
	ErrGone = status.Error(codes.Canceled, "")
)

// Queue puts the replies of one stream into the order in which they are
// written: those of requests that have a turn in the order of the turns, and
// the others as they come.
//
// Bounds. A response of a model that may answer any number of times (and has no
// turn) has a slot in most cases: its backend counts what was not released yet,
// and keeps the model from sending more; the client decides how fast it goes.
// Without slots the model waits in Add while its request has too many replies
// here, or the stream too many bytes. Requests that have a turn never wait in
// Add, since they hold their one reply back for the sake of others: instead, no
// further requests are read while there are too many. A client that reads nothing
// for longer than Limits.Stall while replies wait loses its stream.
//
// Memory. What waits is on the account, with all that it takes on the heap, until
// the transport has nearly written it. Replies beyond the first few are put into
// the form in which they are sent, and what their models have lent goes back: a
// client that does not read holds nothing that others need. Where the account has
// no more, the stream with most of it is ended, unread streams first.
type Queue struct {
	limits  Limits
	waiting *Streams
	wake    chan struct{} // sent to without blocking, by goroutines with news for Next
	Over    chan struct{} // closed by fail: the stream ends now

	mu     sync.Mutex
	room   sync.Cond // broadcast when a reply was sent, a request ended, or all is over
	ready  []Reply
	first  int // ready[first:] is what is left of it
	turns  []*Turn
	begun  int   // requests that have not ended
	bytes  int64 // of all replies that were not sent
	count  int   // of these replies
	cost   int64 // charged, for these replies and the one before them, in the transport
	read   bool  // no further requests will come
	err    error // what the stream ends with
	closed bool
	// writing is the reply that Next gave out, at since. It is written when the one
	// before it, of which the transport had these bytes, has left.
	writing Reply
	since   time.Time
	before  struct{ bytes, cost int64 }
	turned  time.Time // when turns[0] became the first
	// watch looks after a client that does not read while replies wait; nil while
	// none does.
	watch *time.Timer
}

// Limits are what a queue is made with.
type Limits struct {
	Requests  int
	Responses int // of one request without a turn
	Bytes     int64
	Stall     time.Duration // and as much again for each MiB that is written
	// Full is how long a client that has as many bytes waiting as it may can leave the stream
	// unread, if the model cannot be made to wait, and as much again for each MiB.
	Full     time.Duration
	Errors   bool           // the first error of a model ends the stream
	Window   int64          // what the transport keeps unread of the stream, in bytes
	Stopping error          // what the stream ends with when the server stops
	Holder   *budget.Holder // has the replies attributed to it; nil: nobody has
	Log      zerolog.Logger
}

// Turn is a request's place in the order. Nil is none.
type Turn struct {
	replies []Reply // held back until it is this request's turn
	ended   bool
}

// NewQueue returns the queue of a stream that is to Enter waiting.
func NewQueue(limits Limits, waiting *Streams) *Queue {
	q := &Queue{limits: limits, waiting: waiting, wake: make(chan struct{}, 1), Over: make(chan struct{})}
	q.room.L = &q.mu
	return q
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Admit waits until another request may be read. What the client sends meanwhile
// fills the window of its stream, in memory of the transport, which is charged.
func (q *Queue) Admit() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for window := false; !q.closed && (q.begun >= q.limits.Requests || q.bytes >= q.limits.Bytes); {
		if !window {
			if window = q.chargeLocked(budget.Transport, q.limits.Window); window {
				defer q.give(budget.Transport, q.limits.Window)
			}
			continue
		}
		q.room.Wait()
	}
	if q.closed {
		return ErrGone
	}
	return nil
}

// Begin takes in a request; each is ended once.
func (q *Queue) Begin(ordered bool) *Turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begun++
	if !ordered {
		return nil
	}
	t := &Turn{}
	if len(q.turns) == 0 {
		q.turned = time.Now()
	}
	q.turns = append(q.turns, t) // bound: the requests of a stream, which are charged
	return t
}

// Add takes over a reply to a request that was begun.
func (q *Queue) Add(t *Turn, r Reply) {
	r.weigh()
	r.hold()
	q.mu.Lock()
	defer q.mu.Unlock()
	if t == nil && r.mayWait() && q.fullLocked(r.Origin) {
		q.waitLocked(r.Origin)
	}
	// The lock is given back for each thing below that takes its time or locks others. The
	// queue may be closed by then; chargeLocked, and the code after it, looks at that.
	settles := q.settlesLocked(t, &r)
	charged := r.cost
	if settles {
		charged += r.bytes // both are there for a moment
	}
	if q.bytes >= q.limits.Bytes && r.slotted() && q.unreadLocked(q.limits.Full) {
		q.mu.Unlock()
		q.fail(errStalled)
		q.mu.Lock()
	}
	if !q.chargeLocked(budget.Replies, charged) {
		q.dropLocked(&r)
		return
	}
	q.cost += charged
	if settles {
		q.mu.Unlock()
		// After a panic it stays as it is, and fails again where it is written.
		_ = panics.Run(q.limits.Log, panics.Request, func() error { r.settle(); return nil })
		q.mu.Lock()
		if q.closed { // and all of its charge is given back
			q.dropLocked(&r)
			return
		}
		more := r.cost - charged // classes of an output may take more than the output
		if more > 0 && !q.chargeLocked(budget.Replies, more) {
			q.dropLocked(&r)
			return
		}
		q.cost += more
		q.give(budget.Replies, -more)
	}
	q.bytes += r.bytes
	q.count++
	r.Origin.waiting++
	// A turn that is given to Add has not ended, so there is a first one.
	if t == nil || t == q.turns[0] {
		q.pushLocked(r)
	} else {
		t.replies = append(t.replies, r) // bound: charged
	}
	q.watchLocked()
	q.poke()
}

// dropLocked releases a reply without the lock.
func (q *Queue) dropLocked(r *Reply) {
	q.mu.Unlock()
	r.Release()
	q.mu.Lock()
}

// watchLocked begins to watch the client if replies wait behind the reply that is being
// written: when a reply comes, or when the writer takes one of several.
func (q *Queue) watchLocked() {
	if q.watch == nil && q.limits.Stall > 0 && q.writing.Origin != nil && q.count > 1 {
		q.watch = panics.AfterFunc(q.limits.Log, panics.Request, q.limits.Stall/2, q.look, q.fail)
	}
}

// settlesLocked reports whether a reply is to be copied, because it will wait.
func (q *Queue) settlesLocked(t *Turn, r *Reply) bool {
	if q.closed || q.count < keptReplies || r.Response == nil || q.limits.Errors && r.Response.Err != nil {
		return false
	}
	if r.bytes <= copiedBytes || q.unreadLocked(moment) {
		return true
	}
	return t != nil && t != q.turns[0] && time.Since(q.turned) > moment
}

// unreadLocked reports whether nothing has been taken off the stream for so long
// although there was something.
func (q *Queue) unreadLocked(d time.Duration) bool {
	return q.writing.Origin != nil && time.Since(q.since) > d*time.Duration(1+q.before.bytes>>20)
}

// burden returns what the replies are charged, and whether their client has left
// them for a moment or longer.
func (q *Queue) burden() (cost int64, unread bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cost, !q.closed && q.unreadLocked(moment)
}

// chargeLocked charges what a reply takes, or a window. Where that is not to be had
// a stream is ended for it: for a reply the one with most of them, else this one.
// False: the queue is closed, and nothing is charged.
func (q *Queue) chargeLocked(kind budget.Kind, n int64) bool {
	account := q.waiting.account
	for !q.closed {
		if account.Try(kind, n) {
			_ = q.limits.Holder.Hold(kind, n) // which has no bound of its own
			return true
		}
		// Take asks the owners of free memory, and relieve locks other queues: neither under
		// mu, as two queues that relieved each other would wait for ever. What Take has charged
		// is given back: all that is charged for replies has to be in the cost of a queue, where
		// relieve looks for it, and both change under mu together.
		q.mu.Unlock()
		switch err := account.Take(kind, n); {
		case err == nil:
			account.Give(kind, n)
		case kind == budget.Replies:
			q.waiting.relieve(q, n)
		default:
			q.fail(errFull)
		}
		q.mu.Lock()
	}
	return false
}

// give takes back what chargeLocked has charged.
func (q *Queue) give(kind budget.Kind, n int64) {
	q.waiting.account.Give(kind, n)
	q.limits.Holder.Drop(kind, n)
}

// pushLocked appends to ready, and makes room first where half of it is used up.
func (q *Queue) pushLocked(r Reply) {
	if len(q.ready) == cap(q.ready) && q.first > len(q.ready)/2 {
		n := copy(q.ready, q.ready[q.first:])
		clear(q.ready[n:])
		q.ready, q.first = q.ready[:n], 0
	}
	q.ready = append(q.ready, r) // bound: charged
}

func (q *Queue) fullLocked(o *Origin) bool {
	return o.waiting >= q.limits.Responses || q.bytes >= q.limits.Bytes
}

// waitLocked waits until there is room for another reply to o.
func (q *Queue) waitLocked(o *Origin) {
	timer := panics.AfterFunc(q.limits.Log, panics.Request, q.limits.Stall, func() { q.fail(errStalled) }, nil)
	defer timer.Stop()
	for !q.closed && q.fullLocked(o) {
		q.room.Wait()
	}
}

// look ends the stream of a client that has not read for long while replies wait
// behind the reply that is being written.
func (q *Queue) look() {
	q.mu.Lock()
	waits := !q.closed && q.writing.Origin != nil && q.count > 1
	stalled := waits && q.unreadLocked(q.limits.Stall)
	switch {
	case stalled || q.closed:
	case waits:
		q.watch.Reset(q.limits.Stall / 2)
	default:
		q.watch = nil
	}
	q.mu.Unlock()
	if stalled {
		q.fail(errStalled)
	}
}

// End says that no reply to a request will follow.
func (q *Queue) End(t *Turn) {
	q.mu.Lock()
	q.begun--
	if t != nil {
		t.ended = true
		for len(q.turns) > 0 && q.turns[0].ended {
			q.turns[0] = nil
			q.turns = q.turns[1:]
			if len(q.turns) > 0 {
				q.turned = time.Now()
				for _, r := range q.turns[0].replies {
					q.pushLocked(r)
				}
				q.turns[0].replies = nil
			}
		}
	}
	q.room.Broadcast()
	q.mu.Unlock()
	q.poke()
}

// ReadDone says that no request will follow, and with which error the stream
// ends when the requests begun are answered.
func (q *Queue) ReadDone(err error) {
	q.mu.Lock()
	q.read = true
	if !q.closed {
		q.err = err
	}
	q.mu.Unlock()
	q.poke()
}

// fail ends the stream as it is. Several goroutines may come to it: end says which was
// the first, and that one closes Over.
func (q *Queue) fail(err error) {
	q.ended(q.end(err))
}

// ended finishes what end has begun, without a lock.
func (q *Queue) ended(first bool, dropped []Reply) {
	for i := range dropped {
		dropped[i].Release()
	}
	if first {
		close(q.Over)
	}
}

// Reason is what the stream ends with.
func (q *Queue) Reason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Next waits for the reply to be written next, and returns it until Sent is
// called; nil means that all is written. While the server is stopping, it ends
// when nothing is left to do.
func (q *Queue) Next(ctx context.Context, stopping <-chan struct{}) (*Reply, error) {
	stopped := false
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			defer q.mu.Unlock()
			return nil, q.err
		// The reply moves to writing, which no other goroutine changes until Sent: its caller
		// encodes it without the lock.
		case q.first < len(q.ready):
			q.writing, q.since = q.ready[q.first], time.Now()
			q.ready[q.first] = Reply{}
			if q.first++; q.first == len(q.ready) {
				q.ready, q.first = q.ready[:0], 0
			}
			q.watchLocked()
			q.mu.Unlock()
			return &q.writing, nil
		case q.read && q.begun == 0:
			defer q.mu.Unlock()
			return nil, q.err
		}
		idle := q.begun == 0
		q.mu.Unlock()
		stop := stopping
		if stopped && !idle {
			stop = nil
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, ErrGone
		case <-stop:
			if stopped {
				return nil, q.limits.Stopping
			}
			stopped = true // a request may have begun meanwhile
		}
	}
}

// Sent says that the transport has taken the reply which Next gave out, and has
// nearly written the one before.
func (q *Queue) Sent(r *Reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= r.bytes
	q.count--
	r.Origin.waiting--
	if !q.closed { // Close has given back the charge of all replies, these two among them
		q.cost -= q.before.cost
		q.give(budget.Replies, q.before.cost)
	}
	q.before.bytes, q.before.cost = r.bytes, r.cost
	q.writing = Reply{}
	q.room.Broadcast()
}

// Close drops what was not written, and what is yet to come. It reports whether
// it was the first to do so.
func (q *Queue) Close(err error) bool {
	first, dropped := q.end(err)
	for i := range dropped {
		dropped[i].Release()
	}
	return first
}

// end is Close but for the release of what it has dropped, which no lock may be held for.
func (q *Queue) end(err error) (first bool, dropped []Reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first = !q.closed
	if first {
		q.closed, q.err = true, err
		if q.watch != nil {
			q.watch.Stop()
		}
	}
	// Taken out under the lock and released without it: a release may lock a pool, or tell
	// a model that it may send on. The reply that is being written is Next's caller's.
	dropped = q.ready[q.first:]
	for _, t := range q.turns {
		dropped = append(dropped, t.replies...) // bound: charged
		t.replies = nil
	}
	q.ready, q.first = nil, 0
	q.give(budget.Replies, q.cost)
	q.cost = 0
	q.room.Broadcast()
	q.poke()
	return first, dropped
}
