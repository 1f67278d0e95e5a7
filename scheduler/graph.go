package scheduler

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/rs/zerolog"
)

// Graph knows the requests that models have made of their own (BLS), from when
// they come until their last response. All schedulers whose models can call
// each other share one; requests of clients never touch it.
//
// With what the schedulers know, that tells who waits for whom: an instance for
// the open calls of what it executes, a call for the instance that executes it,
// or for any instance of its model while it is queued. A call is refused if it
// would wait for itself: see check.
//
// Locks: searching, before a scheduler's mu, before mu.
type Graph struct {
	log zerolog.Logger

	patience time.Duration // 0: what is only likely is not refused

	searching sync.Mutex // held by the one that looks for a deadlock

	mu    sync.Mutex
	calls map[*infer.Request]*call // the first of the open calls of each request
}

// call is a request that a model has made, as one of those of its caller.
type call struct {
	by    waiter
	outer *infer.Request // one of those that the calling execution is about
	sent  atomic.Uint32  // responses

	// Guarded by the graph's mu.
	open          bool
	holding       bool // infer.Caller's
	before, after *call
}

// waiter is a request as its scheduler knows it.
type waiter interface {
	Model() string
	// Where tells where the request is.
	Where() place
	// station is what it waits for while it is queued.
	Station() station
	// takeBack takes the request from its queue, if it waits.
	TakeBack() bool
	// out counts one that was accepted and is refused after all, and refuse answers
	// one with an error, when it has been taken back.
	Out()
	Refuse(err error)
}

// station is a set of instances for any of which requests wait: those of a
// scheduler, or some of them.
type station interface {
	// look returns what the instances execute, a count of instances that came and
	// went, and whether one is idle, or is being restarted.
	Look() (places []place, changes uint64, free bool)
}

// running is a batch that an instance has, or had.
type running interface {
	Model() string
	Where() place
	Members() []*backend.Task
}

// NewGraph makes a Graph that knows of no call. Patience is how long it waits before
// it refuses a call that only seems to wait for itself; 0: it refuses none of those.
func NewGraph(log zerolog.Logger, patience time.Duration) *Graph {
	return &Graph{log: log, patience: patience, calls: make(map[*infer.Request]*call)}
}

// enter notes a request that a model makes, if it is known in which execution. It
// puts the call where by has it, before others can find it.
func (g *Graph) enter(by waiter, caller *infer.Caller, to **call) {
	if len(caller.Requests) == 0 {
		return
	}
	c := &call{by: by, outer: caller.Requests[0], holding: caller.Holding, open: true}
	*to = c
	g.mu.Lock()
	defer g.mu.Unlock()
	c.after = g.calls[c.outer]
	if c.after != nil {
		c.after.before = c
	}
	g.calls[c.outer] = c
}

// leave forgets a call that has ended. It may be said again.
func (g *Graph) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.open {
		return
	}
	c.open = false
	if c.after != nil {
		c.after.before = c.before
	}
	switch {
	case c.before != nil:
		c.before.after = c.after
	case c.after != nil:
		g.calls[c.outer] = c.after
	default:
		delete(g.calls, c.outer)
	}
	c.before, c.after = nil, nil
}

// responded notes a response of a call that is on its way to the caller, and forgets
// the call if that is the last one.
func (g *Graph) responded(c *call, last bool) {
	c.sent.Add(1)
	if last {
		g.leave(c)
	}
}

// Responses returns how many responses a call has had.
func (c *call) Responses() uint32 { return c.sent.Load() }

// rescheduled notes that the execution of a request has ended although the request
// has not: nothing that it has called holds its next execution.
func (g *Graph) rescheduled(outer *infer.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := g.calls[outer]; c != nil; c = c.after {
		c.holding = false
	}
}

// waits reports whether the requests of a batch have open calls that they wait
// for: those that hold its instance, or all.
func (g *Graph) waits(b running, all bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.calls) == 0 {
		return false
	}
	for _, task := range b.Members() {
		for c := g.calls[task.Request]; c != nil; c = c.after {
			if all || c.holding {
				return true
			}
		}
	}
	return false
}

// open lists the open calls that waits tells of.
func (g *Graph) open(b running, all bool) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*call
	for _, task := range b.Members() {
		for c := g.calls[task.Request]; c != nil; c = c.after {
			if all || c.holding {
				list = append(list, c)
			}
		}
	}
	return list
}

// Open returns how many requests have open calls.
func (g *Graph) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

// isOpen reports whether a call is still one that its caller waits for.
func (g *Graph) isOpen(c *call, all bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.open && (all || c.holding)
}
