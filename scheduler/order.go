package scheduler

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// order lets responses leave in the order in which their requests have taken a
// place in it: those of the first as they come, all others when every request
// before theirs has had its last response.
//
// A client that does not read keeps its model from sending, and with it all that
// are behind. So the first steps aside when its client has gone, or has left a
// response unread for the time of patience while responses of others wait.
type order struct {
	mu          sync.Mutex
	first, last *turn
	passing     bool // somebody hands responses up

	// watch runs while responses of others wait behind the first; nil before the
	// first time. When it began, watched was the first, with seen responses handed up.
	watch    *time.Timer
	watching bool
	watched  *turn
	seen     int64
}

// turn is the place of a request in an order.
type turn struct {
	request *request
	held    []*infer.Response
	next    *turn
	aside   bool         // it is in the order no more
	handed  int64        // its responses with slots that were handed up
	read    atomic.Int64 // those of them that were released
}

// enter gives a request the last place, if it has none yet.
func (o *order) enter(r *request) {
	if r.turn != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.turn = &turn{request: r}
	if o.last == nil {
		o.first = r.turn
	} else {
		o.last.next = r.turn
	}
	o.last = r.turn
}

// deliver hands up a response of a request that has a place, and whatever may
// leave after it, or keeps it. What is kept no longer counts against the window
// of its request: its model might send first what can leave last.
func (o *order) deliver(t *turn, response *infer.Response) {
	o.mu.Lock()
	switch {
	case t.aside:
		o.mu.Unlock()
		t.request.pass(response)
		return
	case response.Slot == nil:
	case t == o.first:
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
	case t != o.first:
		if !o.watching {
			o.watchLocked()
		}
	case !o.passing:
		o.passLocked()
	}
	o.mu.Unlock()
}

// passLocked hands up what may leave. It unlocks the order meanwhile.
func (o *order) passLocked() {
	o.passing = true
	for o.first != nil && len(o.first.held) > 0 {
		t := o.first
		held := t.held
		t.held = nil
		if held[len(held)-1].Final {
			o.nextLocked()
		}
		o.mu.Unlock()
		for _, response := range held {
			t.request.pass(response)
		}
		o.mu.Lock()
	}
	o.passing = false
}

// nextLocked makes the second the first.
func (o *order) nextLocked() {
	if o.first = o.first.next; o.first == nil {
		o.last = nil
		if o.watching {
			o.watching, o.watched = false, nil
			o.watch.Stop()
		}
	}
}

func (o *order) watchLocked() {
	o.watching, o.watched, o.seen = true, o.first, o.first.handed
	if o.watch == nil {
		o.watch = time.AfterFunc(patience, o.look)
		return
	}
	o.watch.Reset(patience)
}

// look has the first step aside if it keeps others back for the sake of a client
// that does not read.
func (o *order) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.watching { // it was stopped too late
		return
	}
	if t := o.first; !o.passing && len(t.held) == 0 {
		gone := t.request.task.Context.Err() != nil
		if o.othersWaitLocked() && (gone || t == o.watched && t.read.Load() < o.seen) {
			t.aside = true
			o.nextLocked()
			o.passLocked()
		}
	}
	o.watching, o.watched = false, nil
	if o.othersWaitLocked() {
		o.watchLocked()
	}
}

// othersWaitLocked reports whether something is kept behind the first.
func (o *order) othersWaitLocked() bool {
	if o.first == nil {
		return false
	}
	for t := o.first.next; t != nil; t = t.next {
		if len(t.held) > 0 {
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

// noSlot stands for a slot that was released when its response was kept: who
// hands it up does so for others, too, and is not to wait for its client.
type noSlot struct{}

// Retain implements infer.Memory.
func (noSlot) Retain() {}

// Release implements infer.Memory.
func (noSlot) Release() {}
