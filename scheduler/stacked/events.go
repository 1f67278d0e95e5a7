package stacked

import (
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Allocator lends n bytes of undefined content, with one reference. Its error reaches clients.
type Allocator func(n int) ([]byte, infer.Memory, error)

// Events wraps the instances of a version for their scheduler, so that they stack batches.
type Events struct {
	plan     *Plan
	allocate Allocator
	account  *budget.Account
	next     backend.Events

	mu  sync.Mutex
	all map[backend.Instance]*instance
}

var _ backend.Events = (*Events)(nil)

// NewEvents returns Events that pass instances to next. The account, which may be nil, is charged
// for texts of merged requests.
func NewEvents(plan *Plan, allocate Allocator, account *budget.Account, next backend.Events) *Events {
	return &Events{plan: plan, allocate: allocate, account: account, next: next, all: make(map[backend.Instance]*instance)}
}

func (e *Events) of(in backend.Instance) *instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.all[in]
	if s == nil {
		s = &instance{inner: in, plan: e.plan, allocate: e.allocate, account: e.account, groups: make(map[*group]struct{})}
		s.settled.L = &s.mu
		e.all[in] = s // bound: the instances of models
	}
	return s
}

// Forget drops an instance that has ended.
func (e *Events) Forget(in backend.Instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, in)
}

// Available implements backend.Events.
func (e *Events) Available(in backend.Instance) { e.next.Available(e.of(in)) }

// Lost implements backend.Events. A batch that is still being merged first goes to the lost
// instance, which refuses it.
func (e *Events) Lost(in backend.Instance, hopeless bool) {
	s := e.of(in)
	s.settle()
	e.next.Lost(s, hopeless)
}
