package waitgraph

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
)

// Graph knows the open BLS requests: the requests that models have made of their own,
// from when they come until their last response.
type Graph struct {
	log      zerolog.Logger
	patience time.Duration // 0: what is only likely is not refused

	searching sync.Mutex // held during a search

	mu   sync.Mutex
	made map[*infer.Request]*BLSRequest // the first of the open BLS requests of each request
}

// BLSRequest is a request that a model has made: a node of the graph, and an edge from the
// execution that has made it.
type BLSRequest struct {
	by    Waiter
	outer *infer.Request // one of those that the calling execution is about
	sent  atomic.Uint32  // responses

	// Guarded by the graph's mu.
	open          bool
	holding       bool // infer.Caller's
	before, after *BLSRequest
}

// New makes a Graph that knows of no BLS request. Patience is how long it waits
// before it refuses a BLS request that only seems to wait for itself; 0: it refuses none of those.
func New(log zerolog.Logger, patience time.Duration) *Graph {
	return &Graph{log: log, patience: patience, made: make(map[*infer.Request]*BLSRequest)}
}

// Enter notes a request that a model makes, if it is known in which execution. It
// puts the BLSRequest where by has it, before others can find it.
func (g *Graph) Enter(by Waiter, caller *infer.Caller, to **BLSRequest) {
	if len(caller.Requests) == 0 {
		return
	}
	q := &BLSRequest{by: by, outer: caller.Requests[0], holding: caller.Holding, open: true}
	*to = q
	g.mu.Lock()
	defer g.mu.Unlock()
	q.after = g.made[q.outer]
	if q.after != nil {
		q.after.before = q
	}
	g.made[q.outer] = q
}

// Leave forgets a BLS request that has ended. It may be said again.
func (g *Graph) Leave(q *BLSRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !q.open {
		return
	}
	q.open = false
	if q.after != nil {
		q.after.before = q.before
	}
	switch {
	case q.before != nil:
		q.before.after = q.after
	case q.after != nil:
		g.made[q.outer] = q.after
	default:
		delete(g.made, q.outer)
	}
	q.before, q.after = nil, nil
}

// Responded notes a response of a BLS request that is on its way to the caller, and
// forgets the BLS request if that is the last one.
func (g *Graph) Responded(q *BLSRequest, last bool) {
	q.sent.Add(1)
	if last {
		g.Leave(q)
	}
}

// Responses returns how many responses a BLS request has had.
func (q *BLSRequest) Responses() uint32 { return q.sent.Load() }

// Rescheduled notes that the execution of a request has ended although the request
// has not: nothing that it has made holds its next execution.
func (g *Graph) Rescheduled(outer *infer.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for q := g.made[outer]; q != nil; q = q.after {
		q.holding = false
	}
}

// waits reports whether the requests of a batch have open BLS requests that they
// wait for: those that hold its instance, or all.
func (g *Graph) waits(b Batch, all bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.made) == 0 {
		return false
	}
	for _, task := range b.Members() {
		for q := g.made[task.Request]; q != nil; q = q.after {
			if all || q.holding {
				return true
			}
		}
	}
	return false
}

// open lists the open BLS requests that waits tells of.
func (g *Graph) open(b Batch, all bool) []*BLSRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*BLSRequest
	for _, task := range b.Members() {
		for q := g.made[task.Request]; q != nil; q = q.after {
			if all || q.holding {
				list = append(list, q)
			}
		}
	}
	return list
}

// Open returns how many requests have open BLS requests.
func (g *Graph) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.made)
}

// isOpen reports whether the caller still waits for a BLS request.
func (g *Graph) isOpen(q *BLSRequest, all bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return q.open && (all || q.holding)
}
