package waitgraph

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
)

// Graph knows the open calls: the requests that models have made of their own, from
// when they come until their last response.
type Graph struct {
	log      zerolog.Logger
	patience time.Duration // 0: what is only likely is not refused

	searching sync.Mutex // held during a search

	mu    sync.Mutex
	calls map[*infer.Request]*Call // the first of the open calls of each request
}

// Call is a request that a model has made, as one of those of its caller.
type Call struct {
	by    Waiter
	outer *infer.Request // one of those that the calling execution is about
	sent  atomic.Uint32  // responses

	// Guarded by the graph's mu.
	open          bool
	holding       bool // infer.Caller's
	before, after *Call
}

// New makes a Graph that knows of no call. Patience is how long it waits before
// it refuses a call that only seems to wait for itself; 0: it refuses none of those.
func New(log zerolog.Logger, patience time.Duration) *Graph {
	return &Graph{log: log, patience: patience, calls: make(map[*infer.Request]*Call)}
}

// Enter notes a request that a model makes, if it is known in which execution. It
// puts the call where by has it, before others can find it.
func (g *Graph) Enter(by Waiter, caller *infer.Caller, to **Call) {
	if len(caller.Requests) == 0 {
		return
	}
	c := &Call{by: by, outer: caller.Requests[0], holding: caller.Holding, open: true}
	*to = c
	g.mu.Lock()
	defer g.mu.Unlock()
	c.after = g.calls[c.outer]
	if c.after != nil {
		c.after.before = c
	}
	g.calls[c.outer] = c
}

// Leave forgets a call that has ended. It may be said again.
func (g *Graph) Leave(c *Call) {
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

// Responded notes a response of a call that is on its way to the caller, and forgets
// the call if that is the last one.
func (g *Graph) Responded(c *Call, last bool) {
	c.sent.Add(1)
	if last {
		g.Leave(c)
	}
}

// Responses returns how many responses a call has had.
func (c *Call) Responses() uint32 { return c.sent.Load() }

// Rescheduled notes that the execution of a request has ended although the request
// has not: nothing that it has called holds its next execution.
func (g *Graph) Rescheduled(outer *infer.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := g.calls[outer]; c != nil; c = c.after {
		c.holding = false
	}
}

// waits reports whether the requests of a batch have open calls that they wait
// for: those that hold its instance, or all.
func (g *Graph) waits(b Batch, all bool) bool {
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
func (g *Graph) open(b Batch, all bool) []*Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*Call
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

// isOpen reports whether the caller still waits for a call.
func (g *Graph) isOpen(c *Call, all bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.open && (all || c.holding)
}
