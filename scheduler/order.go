package scheduler

import (
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// order lets responses leave in the order in which their requests have taken a
// place in it: those of the first as they come, all others when every request
// before theirs has had its last response.
type order struct {
	mu          sync.Mutex
	first, last *turn
	passing     bool // somebody hands responses up
}

// turn is the place of a request in an order.
type turn struct {
	request *request
	held    []*infer.Response
	next    *turn
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
	if t != o.first && response.Slot != nil {
		response.Slot.Release()
		response.Slot = nil
	}
	t.held = append(t.held, response)
	if o.passing || t != o.first {
		o.mu.Unlock()
		return
	}
	o.passing = true
	for o.first != nil && len(o.first.held) > 0 {
		t := o.first
		held := t.held
		t.held = nil
		if held[len(held)-1].Final {
			if o.first = t.next; o.first == nil {
				o.last = nil
			}
		}
		o.mu.Unlock()
		for _, response := range held {
			t.request.pass(response)
		}
		o.mu.Lock()
	}
	o.passing = false
	o.mu.Unlock()
}
