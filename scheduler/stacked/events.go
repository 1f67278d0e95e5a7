package stacked

import (
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// Allocator lends memory for the bytes of one tensor: n bytes with one
// reference, whose content is undefined. The error reaches clients.
type Allocator func(n int) ([]byte, infer.Memory, error)

// Events stands between the instances of a version and its scheduler, which gets
// instances that stack the batches they are given.
type Events struct {
	plan     *Plan
	allocate Allocator
	account  *budget.Account
	next     backend.Events

	mu  sync.Mutex
	all map[backend.Instance]*instance
}

var _ backend.Events = (*Events)(nil)

// NewEvents puts the stacking in front of next. The account is charged for texts of merged
// requests; nil charges nothing.
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
		e.all[in] = s
	}
	return s
}

// Forget drops an instance that is gone for good.
func (e *Events) Forget(in backend.Instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, in)
}

// Available implements backend.Events.
func (e *Events) Available(in backend.Instance) { e.next.Available(e.of(in)) }

// Lost implements backend.Events. A batch whose inputs are still being copied is
// handed to the lost instance first, which gives it back.
func (e *Events) Lost(in backend.Instance, hopeless bool) {
	s := e.of(in)
	s.settle()
	e.next.Lost(s, hopeless)
}
