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
	// keptReplies is the number of replies of a stream that may wait unencoded, with the memory
	// that their models have lent.
	keptReplies = 8
	// copiedBytes is the size up to which a reply is always copied if it must wait behind others.
	// A larger one is copied only if the client has read nothing for a moment.
	copiedBytes = 64 << 10
	moment      = 100 * time.Millisecond
)

var (
	errStalled = status.Error(codes.ResourceExhausted, "the client does not read the responses of its stream")
	errFull    = status.Error(codes.ResourceExhausted, "the server has no memory left for the stream")
	// ErrGone ends the stream of a client that has disconnected.
	ErrGone = status.Error(codes.Canceled, "")
)

// Queue orders the replies of one stream: replies to requests with a turn in the order of the
// turns, all others as they arrive.
//
// Bounds. A response of a decoupled model has no turn, and usually a slot: its backend counts the
// responses that are not released yet, and stops the model from sending more, so that the client
// sets the pace. Without slots the model waits in Add while its request has too many queued
// replies, or the stream too many bytes. Requests with a turn never wait in Add, since their one
// reply waits for earlier ones. Instead, no further requests are read while there are too many. A
// client that reads nothing for longer than Limits.Stall while replies wait loses its stream.
//
// Memory. All heap memory of waiting replies is charged until the transport has almost written
// them. Replies beyond the first few are encoded, and the memory lent by their models is released,
// so that a client that does not read holds nothing that others need. When the account is full,
// the stream with the largest charge is ended, unread streams first.
type Queue struct {
	limits  Limits
	waiting *Streams
	wake    chan struct{} // buffer of 1; poke sends without blocking to wake Next
	Over    chan struct{} // closed by fail: the stream ends now

	mu     sync.Mutex
	room   sync.Cond // broadcast when a reply was sent, a request ended, or all is over
	ready  []Reply
	first  int // ready[first:] are the waiting replies
	turns  []*Turn
	begun  int   // requests that have not ended
	bytes  int64 // of all unsent replies
	count  int   // number of unsent replies
	cost   int64 // charged for the unsent replies, and the previous one in the transport
	read   bool  // no further requests will come
	err    error // the status of the stream
	closed bool
	// writing is the reply that Next returned at since. It is written once the previous one, which
	// has the sizes in before, has left the transport.
	writing Reply
	since   time.Time
	before  struct{ bytes, cost int64 }
	turned  time.Time // when turns[0] became the first
	// watch detects a client that does not read while replies wait; nil if none wait.
	watch *time.Timer
}

// Limits configures a queue.
type Limits struct {
	Requests  int
	Responses int // of one request without a turn
	Bytes     int64
	Stall     time.Duration // plus the same time for each MiB that is written
	// Full replaces Stall when Bytes are waiting and the model cannot be made to wait; plus the
	// same time for each MiB.
	Full     time.Duration
	Errors   bool           // the first error of a model ends the stream
	Window   int64          // flow-control window of the stream, in bytes
	Stopping error          // the status of the stream when the server stops
	Holder   *budget.Holder // owner of the replies' charges; nil: none
	Log      zerolog.Logger
}

// Turn is a request's position in the order of replies; nil: unordered.
type Turn struct {
	replies []Reply // held back until it is this request's turn
	ended   bool
}

// NewQueue returns the queue of a stream. The caller enters it into waiting.
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

// Admit waits until another request may be read. Meanwhile the client may fill its stream's window,
// which is charged.
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

// Begin adds a request. End must follow.
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

// Add queues a reply to a request and takes ownership of it.
func (q *Queue) Add(t *Turn, r Reply) {
	r.weigh()
	r.hold()
	q.mu.Lock()
	defer q.mu.Unlock()
	if t == nil && r.mayWait() && q.fullLocked(r.Origin) {
		q.waitLocked(r.Origin)
	}
	// The lock is released below for slow work and for other locks. The queue may be closed
	// meanwhile; chargeLocked and the code after it check for that.
	settles := q.settlesLocked(t, &r)
	charged := r.cost
	if settles {
		charged += r.bytes // the response and its message exist together for a moment
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
		// After a panic the reply is unchanged, and fails again when it is written.
		_ = panics.Run(q.limits.Log, panics.Request, func() error { r.settle(); return nil })
		q.mu.Lock()
		if q.closed { // which has given back the whole charge
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
	// t has not ended, so turns is not empty.
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

// watchLocked starts to watch the client if replies wait behind the one being written.
func (q *Queue) watchLocked() {
	if q.watch == nil && q.limits.Stall > 0 && q.writing.Origin != nil && q.count > 1 {
		q.watch = panics.AfterFunc(q.limits.Log, panics.Request, q.limits.Stall/2, q.look, q.fail)
	}
}

// settlesLocked reports whether to settle a reply, because it will have to wait.
func (q *Queue) settlesLocked(t *Turn, r *Reply) bool {
	if q.closed || q.count < keptReplies || r.Response == nil || q.limits.Errors && r.Response.Err != nil {
		return false
	}
	if r.bytes <= copiedBytes || q.unreadLocked(moment) {
		return true
	}
	return t != nil && t != q.turns[0] && time.Since(q.turned) > moment
}

// unreadLocked reports whether the client has left replies unread for longer than d.
func (q *Queue) unreadLocked(d time.Duration) bool {
	return q.writing.Origin != nil && time.Since(q.since) > d*time.Duration(1+q.before.bytes>>20)
}

// burden returns the charge of the replies, and whether the client has left them unread for a
// moment or longer.
func (q *Queue) burden() (cost int64, unread bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cost, !q.closed && q.unreadLocked(moment)
}

// chargeLocked charges a reply or a window. If the account is full, it ends a stream: for a reply
// the stream with the largest charge, for a window this one. It returns false, with nothing
// charged, if the queue is closed.
func (q *Queue) chargeLocked(kind budget.Kind, n int64) bool {
	account := q.waiting.account
	for !q.closed {
		if account.Try(kind, n) {
			_ = q.limits.Holder.Hold(kind, n) // the holder has no bound
			return true
		}
		// mu is released: Take calls the owners of free memory, and relieve locks other queues,
		// where two queues that relieve each other would deadlock. The charge of Take is given
		// back and taken again under mu, because the charge for replies must equal the sum of the
		// queues' costs, by which relieve selects a stream.
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

// give gives back n bytes that chargeLocked has charged.
func (q *Queue) give(kind budget.Kind, n int64) {
	q.waiting.account.Give(kind, n)
	q.limits.Holder.Drop(kind, n)
}

// pushLocked appends to ready. If more than half of ready is consumed, it moves the rest to the
// front instead of growing.
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

// look ends the stream if its client has not read for Limits.Stall while replies wait behind the
// one being written.
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

// End reports that no reply to a request will follow.
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

// ReadDone reports that no request will follow. err becomes the status of the stream when all
// requests have ended.
func (q *Queue) ReadDone(err error) {
	q.mu.Lock()
	q.read = true
	if !q.closed {
		q.err = err
	}
	q.mu.Unlock()
	q.poke()
}

// fail ends the stream at once. Several goroutines may call it; the first one closes Over.
func (q *Queue) fail(err error) {
	q.ended(q.end(err))
}

// ended completes end, without a lock.
func (q *Queue) ended(first bool, dropped []Reply) {
	for i := range dropped {
		dropped[i].Release()
	}
	if first {
		close(q.Over)
	}
}

// Reason returns the status with which the stream ends.
func (q *Queue) Reason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Next waits for the next reply to write and lends it until Sent; nil means that the stream ends,
// with the given error. While the server is stopping, the stream ends once nothing is in flight.
func (q *Queue) Next(ctx context.Context, stopping <-chan struct{}) (*Reply, error) {
	stopped := false
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			defer q.mu.Unlock()
			return nil, q.err
		// The reply moves to writing, which no other goroutine changes until Sent, so the caller
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

// Sent reports that the transport has accepted the reply that Next returned, and has almost written
// the previous one.
func (q *Queue) Sent(r *Reply) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= r.bytes
	q.count--
	r.Origin.waiting--
	if !q.closed { // Close gives back the charge of all replies, including these two
		q.cost -= q.before.cost
		q.give(budget.Replies, q.before.cost)
	}
	q.before.bytes, q.before.cost = r.bytes, r.cost
	q.writing = Reply{}
	q.room.Broadcast()
}

// Close drops all replies that are not written, and all later ones. It reports whether this was
// the first call.
func (q *Queue) Close(err error) bool {
	first, dropped := q.end(err)
	for i := range dropped {
		dropped[i].Release()
	}
	return first
}

// end is Close without the release of the dropped replies, during which no lock may be held.
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
	// The replies are removed under the lock and released without it: a release may lock a pool,
	// or allow a model to send. The caller of Next owns the reply that is being written.
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
