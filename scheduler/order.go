package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// order sends responses in the order in which their requests were given to instances. Responses of
// the first request leave at once, all others when every earlier request has had its last response.
//
// A client that does not read blocks its model, and all clients behind it. Such a client steps
// aside if it has disconnected, or has not read a response of the first request for the time of
// patience while responses of other clients wait. Its requests, including later ones, then use a
// row of their own until they have ended. A client is identified by the context of its requests,
// which all requests of a stream share.
type order struct {
	log *zerolog.Logger

	mu    sync.Mutex
	main  orderRow
	aside map[context.Context]*orderRow // by client; nil before the first

	// watch runs while responses wait in the main row; nil before its first use. When it started,
	// watched was the first request, with seen responses sent.
	watch    *time.Timer
	watching bool
	watched  *turn
	seen     int64
}

// orderRow is the queue of all clients, or of one.
type orderRow struct {
	List[*turn]
	client  context.Context // nil for the main row
	passing bool            // a goroutine sends responses
}

// turn is a request in an order.
type turn struct {
	Neighbours[*turn] // in its row

	request *request
	row     *orderRow // guarded by the order's mu
	held    []*infer.Response
	handed  int64        // its responses with slots that were sent
	read    atomic.Int64 // the released ones among them
}

func (t *turn) client() context.Context { return t.request.task.Context }

func (w *orderRow) add(t *turn) {
	t.row = w
	w.PushBack(t)
}

// enter appends a request that is not in the order yet.
func (o *order) enter(r *request) {
	if r.turn != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.turn = &turn{request: r}
	if w := o.aside[r.turn.client()]; w != nil {
		w.add(r.turn)
	} else {
		o.main.add(r.turn)
	}
}

// deliver sends a response of a request and the responses that may follow it, or keeps it. A kept
// response releases its slot: its model may send first the response that leaves last.
func (o *order) deliver(t *turn, response *infer.Response) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := t.row
	switch {
	case response.Slot == nil:
	case t == w.First:
		t.handed++
		s := &readSlot{slot: response.Slot, turn: t}
		s.refs.Store(1)
		response.Slot = s
	default:
		response.Slot.Release()
		response.Slot = noSlot{}
	}
	t.held = append(t.held, response) // bound: the process's holder answers for kept responses
	switch {
	case t == w.First:
		if !w.passing {
			o.passLocked(w)
		}
	case w == &o.main && !o.watching:
		o.watchLocked()
	}
}

// passLocked sends the responses that may leave. It unlocks the order meanwhile.
func (o *order) passLocked(w *orderRow) {
	w.passing = true
	for w.First != nil && len(w.First.held) > 0 {
		t := w.First
		held := t.held
		t.held = nil
		if held[len(held)-1].Final {
			w.Remove(t)
		}
		o.mu.Unlock()
		for _, response := range held {
			t.request.pass(response)
		}
		o.mu.Lock()
	}
	w.passing = false
	switch {
	case w.First != nil:
	case w != &o.main:
		delete(o.aside, w.client)
	case o.watching:
		o.watching, o.watched = false, nil
		o.watch.Stop()
	}
}

func (o *order) watchLocked() {
	o.watching, o.watched, o.seen = true, o.main.First, o.main.First.handed
	if o.watch == nil {
		o.watch = panics.AfterFunc(*o.log, panics.Scheduler, waitgraph.Patience, o.look, nil)
		return
	}
	o.watch.Reset(waitgraph.Patience)
}

// look makes the client of the first request step aside if it does not read and blocks others.
func (o *order) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.watching { // the timer fired before it was stopped
		return
	}
	if t := o.main.First; t != nil && !o.main.passing && len(t.held) == 0 {
		gone := t.client().Err() != nil
		if o.othersWaitLocked() && (gone || t == o.watched && t.read.Load() < o.seen) {
			o.stepAsideLocked(t.client())
			o.passLocked(&o.main)
		}
	}
	o.watching, o.watched = false, nil
	if o.othersWaitLocked() {
		o.watchLocked()
	}
}

// stepAsideLocked moves the requests of a client to a row of its own.
func (o *order) stepAsideLocked(client context.Context) {
	own := &orderRow{client: client}
	if o.aside == nil {
		o.aside = make(map[context.Context]*orderRow)
	}
	o.aside[client] = own // bound: clients of requests, which are charged
	for t := o.main.First; t != nil; {
		after := t.After
		if t.client() == client {
			o.main.Remove(t)
			own.add(t)
		}
		t = after
	}
}

// othersWaitLocked reports whether the first request blocks a response of another client.
func (o *order) othersWaitLocked() bool {
	if o.main.First == nil {
		return false
	}
	for t := o.main.First.After; t != nil; t = t.After {
		if len(t.held) > 0 && t.client() != o.main.First.client() {
			return true
		}
	}
	return false
}

// readSlot is the slot of a response; its release tells the turn that the client has read it.
type readSlot struct {
	slot infer.Memory
	turn *turn
	refs atomic.Int32
}

// Retain implements infer.Memory.
func (s *readSlot) Retain() {
	s.refs.Add(1)
	s.slot.Retain()
}

// Release implements infer.Memory.
func (s *readSlot) Release() {
	if s.refs.Add(-1) == 0 {
		s.turn.read.Add(1)
	}
	s.slot.Release()
}

// noSlot replaces a slot that was released when its response was kept. The goroutine that sends the
// response later may block other responses, so it must not wait for the client.
type noSlot struct{}

// Retain implements infer.Memory.
func (noSlot) Retain() {}

// Release implements infer.Memory.
func (noSlot) Release() {}
