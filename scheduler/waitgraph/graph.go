package waitgraph

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
)

// Graph holds the open BLS requests, from their arrival to their last response.
type Graph struct {
	log      zerolog.Logger
	patience time.Duration // 0: probable deadlocks are not rejected

	searching sync.Mutex // held during a search

	mu   sync.Mutex
	made map[*infer.Request]*BLSRequest // by the request that made them: the first of a list
}

// BLSRequest is a request that a model has made: a node of the graph, and an edge from the
// execution that made it.
type BLSRequest struct {
	by    Waiter
	outer *infer.Request // a request of the calling execution
	sent  atomic.Uint32  // responses

	// Guarded by the graph's mu.
	open          bool
	holding       bool // infer.Caller's
	before, after *BLSRequest
}

// New returns an empty Graph. Probable deadlocks are rejected after the time of patience; 0: never.
func New(log zerolog.Logger, patience time.Duration) *Graph {
	return &Graph{log: log, patience: patience, made: make(map[*infer.Request]*BLSRequest)}
}

// Enter adds a request that a model makes, if its execution is known. It stores the BLSRequest in
// to before others can find it.
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
	g.made[q.outer] = q // bound: BLS requests, which are charged
}

// Leave removes a BLS request that has ended. A second call has no effect.
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
		g.made[q.outer] = q.after // bound: BLS requests, which are charged
	default:
		delete(g.made, q.outer)
	}
	q.before, q.after = nil, nil
}

// Responded counts a response that is on its way to the caller. The last one removes the BLS
// request.
func (g *Graph) Responded(q *BLSRequest, last bool) {
	q.sent.Add(1)
	if last {
		g.Leave(q)
	}
}

// Responses returns the number of responses of a BLS request.
func (q *BLSRequest) Responses() uint32 { return q.sent.Load() }

// Rescheduled records that the execution of a request has ended although the request has not: its
// BLS requests do not hold its next execution.
func (g *Graph) Rescheduled(outer *infer.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for q := g.made[outer]; q != nil; q = q.after {
		q.holding = false
	}
}

// waits reports whether the requests of a batch wait for open BLS requests: those that hold its
// instance, or all.
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

// open returns the open BLS requests that waits reports.
func (g *Graph) open(b Batch, all bool) []*BLSRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*BLSRequest
	for _, task := range b.Members() {
		for q := g.made[task.Request]; q != nil; q = q.after {
			if all || q.holding {
				list = append(list, q) // bound: BLS requests, which are charged
			}
		}
	}
	return list
}

// Open returns the number of requests with open BLS requests.
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
