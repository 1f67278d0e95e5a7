package trace

import (
	"sync"
	"sync/atomic"
)

// Config says what is recorded of a request of a client.
type Config struct {
	Timestamps bool // Triton's level TIMESTAMPS
	Tensors    bool // Triton's level TENSORS
	// FrontEndLast puts the entries of the front end behind all others of the request,
	// where Triton has those of gRPC.
	FrontEndLast bool

	// TraceID and State are of the W3C context that models are to hand on; without a
	// TraceID there is none. Parent is the client's span, zero if it has named none.
	TraceID TraceID
	Parent  SpanID
	State   string

	Memory Memory // for texts of tensors and names of activities; nil: there is room for all

	IDs  *atomic.Uint64 // the number of the last trace that has begun
	Now  func() int64   // ns of the clock that schedulers and backends use
	Done func(*Tree)    // called once, when the tree is complete; its receiver calls Release
}

// Memory is the account of what texts take, in bytes. Its methods do not wait.
type Memory interface {
	Take(n int64) bool // whether there is room
	Give(n int64)
}

// Tree is one request of a client with all requests that were made for it.
type Tree struct {
	config Config

	mu        sync.Mutex
	traces    []*Trace // the client's request first, the others as they began
	late      []Entry  // of the front end, with FrontEndLast
	open      int      // begun traces that have not ended, and one more until Finish
	finished  bool     // the front end has called Finish
	responded bool     // the client's request has a response
	complete  bool
	taken     int64 // of Memory
	omitted   int   // tensors for which Memory had no room
	left      int   // activities for which there was none, or that were too many
}

// New makes the tree of a request that a client has sent, and returns the trace of that
// request. The front end calls Finish once.
func New(config Config) *Trace {
	tree := &Tree{config: config, open: 1}
	t := &Trace{tree: tree}
	tree.enterLocked(t) // nothing else knows the tree yet
	return t
}

// Config returns what the tree was made with.
func (tree *Tree) Config() *Config { return &tree.config }

// Records are the requests of a tree that is complete: the client's first.
func (tree *Tree) Records() []*Record {
	records := make([]*Record, len(tree.traces))
	for i, t := range tree.traces {
		records[i] = &t.record
	}
	return records
}

// Omitted returns how many tensors are not recorded for want of memory, of a tree that is
// complete.
func (tree *Tree) Omitted() int { return tree.omitted }

// LeftOut returns how many activities are not recorded for want of memory or because they were too many, of a tree that is
// complete.
func (tree *Tree) LeftOut() int { return tree.left }

// Release gives the memory of texts back, of a tree that is complete.
func (tree *Tree) Release() {
	tree.give(tree.taken)
	tree.taken = 0
}

func (tree *Tree) take(n int64) bool { return tree.config.Memory == nil || tree.config.Memory.Take(n) }

func (tree *Tree) give(n int64) {
	if tree.config.Memory != nil && n > 0 {
		tree.config.Memory.Give(n)
	}
}

func (tree *Tree) enterLocked(t *Trace) {
	t.ID = tree.config.IDs.Add(1)
	if !tree.config.TraceID.IsZero() {
		t.Span = NewSpanID()
	}
	tree.traces = append(tree.traces, t)
}

// frontLocked notes what the front end does; at is 0 for now.
func (tree *Tree) frontLocked(t *Trace, name Name, at int64) {
	if tree.complete || !tree.config.Timestamps {
		return
	}
	if at == 0 {
		at = tree.config.Now()
	}
	if tree.config.FrontEndLast {
		tree.late = append(tree.late, Entry{Name: name, At: at})
		return
	}
	t.Entries = append(t.Entries, Entry{Name: name, At: at})
}

// unlock unlocks mu, and tells Done if the tree is complete now.
func (tree *Tree) unlock() {
	over := tree.open == 0 && !tree.complete
	if over {
		tree.complete = true
		root := tree.traces[0]
		root.Entries = append(root.Entries, tree.late...)
	}
	tree.mu.Unlock()
	if over {
		tree.config.Done(tree)
	}
}
