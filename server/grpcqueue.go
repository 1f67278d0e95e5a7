package server

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
)

// grpcReplyOverhead is what a reply counts for besides its tensors' bytes.
const grpcReplyOverhead = 512

// grpcQueue puts the replies of one stream into the order in which they are
// written: those of requests that have a turn in the order of the turns, and
// the others as they come.
//
// Bounds. A response of a model that may answer any number of times (and has no
// turn) has a slot in most cases: its backend counts what was not released yet,
// and keeps the model from sending more; the client decides how fast it goes.
// Without slots the model waits in add while its request has too many replies
// here, or the stream too many bytes. A client that makes a model wait for longer
// than stall, here or by reading nothing while responses with slots are queued,
// loses its stream. Requests that have a turn never wait in add, since they hold
// their one answer back for the sake of others: instead, no further requests are
// read while there are too many.
type grpcQueue struct {
	limits grpcQueueLimits
	wake   chan struct{} // sent to without blocking, by whoever has news for next
	over   chan struct{} // closed by fail: the stream ends now

	mu     sync.Mutex
	room   sync.Cond // broadcast when a reply was sent, a request ended, or all is over
	ready  []grpcReply
	first  int // ready[first:] is what is left of it
	turns  []*grpcTurn
	begun  int   // requests that have not ended
	bytes  int64 // of all replies that were not sent
	read   bool  // no further requests will come
	err    error // what the stream ends with
	closed bool
	// writing is the reply that next gave out, at since.
	writing grpcReply
	since   time.Time
	// watch looks after a client that does not read what has slots; nil until there
	// is such a reply.
	watch *time.Timer
}

// grpcQueueLimits are what a queue is made with.
type grpcQueueLimits struct {
	requests  int
	responses int // of one request without a turn
	bytes     int64
	stall     time.Duration
	log       zerolog.Logger
}

// grpcTurn is a request's place in the order. Nil is none.
type grpcTurn struct {
	replies []grpcReply // held back until it is this request's turn
	ended   bool
}

func newGRPCQueue(limits grpcQueueLimits) *grpcQueue {
	q := &grpcQueue{limits: limits, wake: make(chan struct{}, 1), over: make(chan struct{})}
	q.room.L = &q.mu
	return q
}

func (q *grpcQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// admit waits until another request may be read.
func (q *grpcQueue) admit() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (q.begun >= q.limits.requests || q.bytes >= q.limits.bytes) {
		q.room.Wait()
	}
	if q.closed {
		return errGRPCGone
	}
	return nil
}

// begin takes in a request; each is ended once.
func (q *grpcQueue) begin(ordered bool) *grpcTurn {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begun++
	if !ordered {
		return nil
	}
	t := &grpcTurn{}
	q.turns = append(q.turns, t)
	return t
}

// add takes over a reply to a request that was begun.
func (q *grpcQueue) add(t *grpcTurn, r grpcReply) {
	r.bytes = grpcReplyOverhead
	if r.response != nil {
		for i := range r.response.Outputs {
			r.bytes += int64(len(r.response.Outputs[i].Data))
		}
	}
	q.mu.Lock()
	if t == nil && r.mayWait() && q.fullLocked(r.origin) {
		q.waitLocked(r.origin)
	}
	if q.closed {
		q.mu.Unlock()
		r.release()
		return
	}
	if q.watch == nil && q.limits.stall > 0 && r.response != nil && r.response.Slot != nil {
		q.since = time.Now()
		q.watch = boundary.AfterFunc(q.limits.log, boundary.Request, q.limits.stall/2, q.look, q.fail)
	}
	q.bytes += r.bytes
	r.origin.waiting++
	if t == nil || t == q.turns[0] {
		q.pushLocked(r)
	} else {
		t.replies = append(t.replies, r)
	}
	q.mu.Unlock()
	q.poke()
}

// pushLocked appends to ready, and makes room first where half of it is used up.
func (q *grpcQueue) pushLocked(r grpcReply) {
	if len(q.ready) == cap(q.ready) && q.first > len(q.ready)/2 {
		n := copy(q.ready, q.ready[q.first:])
		clear(q.ready[n:])
		q.ready, q.first = q.ready[:n], 0
	}
	q.ready = append(q.ready, r)
}

func (q *grpcQueue) fullLocked(o *grpcOrigin) bool {
	return o.waiting >= q.limits.responses || q.bytes >= q.limits.bytes
}

// waitLocked waits until there is room for another reply to o.
func (q *grpcQueue) waitLocked(o *grpcOrigin) {
	timer := boundary.AfterFunc(q.limits.log, boundary.Request, q.limits.stall, func() { q.fail(errGRPCStalled) }, nil)
	defer timer.Stop()
	for !q.closed && q.fullLocked(o) {
		q.room.Wait()
	}
}

// look ends the stream of a client that has not read for long, if replies with
// slots wait behind the one that is written: their models wait as well.
func (q *grpcQueue) look() {
	q.mu.Lock()
	stalled := !q.closed && q.writing.origin != nil && q.first < len(q.ready) && time.Since(q.since) >= q.limits.stall
	if !stalled && !q.closed {
		q.watch.Reset(q.limits.stall / 2)
	}
	q.mu.Unlock()
	if stalled {
		q.fail(errGRPCStalled)
	}
}

// end says that no reply to a request will follow.
func (q *grpcQueue) end(t *grpcTurn) {
	q.mu.Lock()
	q.begun--
	if t != nil {
		t.ended = true
		for len(q.turns) > 0 && q.turns[0].ended {
			q.turns[0] = nil
			q.turns = q.turns[1:]
			if len(q.turns) > 0 {
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

// readDone says that no request will follow, and with which error the stream
// ends when those that were begun are answered.
func (q *grpcQueue) readDone(err error) {
	q.mu.Lock()
	q.read = true
	if !q.closed {
		q.err = err
	}
	q.mu.Unlock()
	q.poke()
}

// fail ends the stream as it is.
func (q *grpcQueue) fail(err error) {
	if q.close(err) {
		close(q.over)
	}
}

// reason is what the stream ends with.
func (q *grpcQueue) reason() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// next waits for the reply to be written next, and returns it until sent is
// called; nil means that all is written. While the server is stopping, it ends
// when nothing is left to do.
func (q *grpcQueue) next(ctx context.Context, stopping <-chan struct{}) (*grpcReply, error) {
	stopped := false
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			defer q.mu.Unlock()
			return nil, q.err
		case q.first < len(q.ready):
			q.writing = q.ready[q.first]
			if q.watch != nil {
				q.since = time.Now()
			}
			q.ready[q.first] = grpcReply{}
			if q.first++; q.first == len(q.ready) {
				q.ready, q.first = q.ready[:0], 0
			}
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
			return nil, errGRPCGone
		case <-stop:
			if stopped {
				return nil, grpcStatus(errGRPCStopping)
			}
			stopped = true // a request may have begun meanwhile
		}
	}
}

// sent says that the reply which next gave out is written.
func (q *grpcQueue) sent(r *grpcReply) {
	q.mu.Lock()
	q.bytes -= r.bytes
	r.origin.waiting--
	q.writing = grpcReply{}
	q.room.Broadcast()
	q.mu.Unlock()
}

// close drops what was not written, and what is yet to come. It reports whether
// it was the first to do so.
func (q *grpcQueue) close(err error) bool {
	q.mu.Lock()
	first := !q.closed
	if first {
		q.closed, q.err = true, err
		if q.watch != nil {
			q.watch.Stop()
		}
	}
	dropped := q.ready[q.first:]
	for _, t := range q.turns {
		dropped = append(dropped, t.replies...)
		t.replies = nil
	}
	q.ready, q.first = nil, 0
	q.room.Broadcast()
	q.mu.Unlock()
	q.poke()
	for i := range dropped {
		dropped[i].release()
	}
	return first
}
