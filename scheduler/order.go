package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/linked"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// order lets responses leave in the order in which their requests have taken a
// place in it: those of the first as they come, all others when every request
// before theirs has had its last response.
//
// A client that does not read keeps its model from sending, and with it all that
// are behind. So it steps aside when it has gone, or has left a response of the
// first request unread for the time of patience while responses of other clients
// wait: its requests, those to come too, have a row of their own until they have
// ended. A client is known by the context of its requests, which all those of a
// stream share.
type order struct {
	log *zerolog.Logger

	mu    sync.Mutex
	main  orderRow
	aside map[context.Context]*orderRow // by their clients; nil before the first

	// watch runs while responses wait in the main row; nil before the first time.
	// When it began, watched was the first, with seen responses handed up.
	watch    *time.Timer
	watching bool
	watched  *turn
	seen     int64
}

// orderRow is the turns of all clients, or of one.
type orderRow struct {
	linked.List[*turn]
	client  context.Context // nil for those of all
	passing bool            // a goroutine hands responses up
}

// turn is the place of a request in an order.
type turn struct {
	linked.Neighbours[*turn] // in its row

	request *request
	row     *orderRow // guarded by the order's mu
	held    []*infer.Response
	handed  int64        // its responses with slots that were handed up
	read    atomic.Int64 // those of them that were released
}

func (t *turn) client() context.Context { return t.request.task.Context }

func (w *orderRow) add(t *turn) {
	t.row = w
	w.PushBack(t)
}

// enter gives a request the last place, if it has none yet.
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

// deliver hands up a response of a request that has a place, and the responses that
// may leave after it, or keeps it. What is kept no longer counts against the window
// of its request: its model might send first what can leave last.
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
	t.held = append(t.held, response)
	switch {
	case t == w.First:
		if !w.passing {
			o.passLocked(w)
		}
	case w == &o.main && !o.watching:
		o.watchLocked()
	}
}

// passLocked hands up what may leave. It unlocks the order meanwhile.
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

// look has a client step aside if the first, which is one of its requests, keeps
// others back because its client does not read.
func (o *order) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.watching { // it was stopped too late
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

// stepAsideLocked gives the requests of a client a row of their own.
func (o *order) stepAsideLocked(client context.Context) {
	own := &orderRow{client: client}
	if o.aside == nil {
		o.aside = make(map[context.Context]*orderRow)
	}
	o.aside[client] = own
	for t := o.main.First; t != nil; {
		after := t.After
		if t.client() == client {
			o.main.Remove(t)
			own.add(t)
		}
		t = after
	}
}

// othersWaitLocked reports whether something of another client is kept behind the
// first.
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

// readSlot is the slot of a response that tells its turn when it has been read.
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

// noSlot stands for a slot that was released when its response was kept: the goroutine that
// hands it up later may hold other responses back, so it is not to wait for the client.
type noSlot struct{}

// Retain implements infer.Memory.
func (noSlot) Retain() {}

// Release implements infer.Memory.
func (noSlot) Release() {}
