package trace

import (
	"sync"
	"sync/atomic"
)

// Config selects the recorded data of a client's request.
type Config struct {
	Timestamps bool // Triton's level TIMESTAMPS
	Tensors    bool // Triton's level TENSORS
	// FrontEndLast puts the entries of the front end after all others, as Triton does for gRPC.
	FrontEndLast bool

	// TraceID and State are the W3C context for models; none without a TraceID. Parent is the
	// client's span, or zero.
	TraceID TraceID
	Parent  SpanID
	State   string

	Memory Memory // for texts; nil: unlimited

	IDs  *atomic.Uint64 // the last number of a trace
	Now  func() int64   // ns of the clock of schedulers and backends
	Done func(*Tree)    // called once for the complete tree; the receiver calls Release
}

// Memory is the account of texts, in bytes. Its methods do not wait.
type Memory interface {
	Take(n int64) bool // reports whether there is room
	Give(n int64)
}

// Tree is a client's request with all requests made on its behalf.
type Tree struct {
	config Config

	mu        sync.Mutex
	traces    []*Trace // the client's request first, then in the order of Begin
	late      []Entry  // entries of the front end, with FrontEndLast
	open      int      // unfinished traces, plus one until Finish
	finished  bool     // the front end has called Finish
	responded bool     // the client's request has a response
	complete  bool
	taken     int64 // taken from Memory
	omitted   int   // tensors without room in Memory
	left      int   // activities, executions, requests and ids without room, or too many activities
}

// New returns the trace of a client's request in a new tree. The front end calls Finish once.
func New(config Config) *Trace {
	tree := &Tree{config: config, open: 1}
	t := &Trace{tree: tree}
	tree.enterLocked(t) // nothing else knows the tree yet
	return t
}

func (tree *Tree) Config() *Config { return &tree.config }

// Records returns the records of a complete tree: the client's request first.
func (tree *Tree) Records() []*Record {
	records := make([]*Record, len(tree.traces)) // bound: the requests of the tree, which are charged
	for i, t := range tree.traces {
		records[i] = &t.record
	}
	return records
}

// Omitted returns the number of tensors that were not recorded for lack of memory.
func (tree *Tree) Omitted() int { return tree.omitted }

// LeftOut returns the number of activities, executions, requests and ids that were not recorded.
func (tree *Tree) LeftOut() int { return tree.left }

// Release refunds the memory of texts.
func (tree *Tree) Release() {
	tree.give(tree.taken)
	tree.taken = 0
}

func (tree *Tree) take(n int64) bool { return tree.config.Memory == nil || tree.config.Memory.Take(n) }

// hold takes memory until Release. Without room, something of the tree is left out. A tree that is
// complete holds nothing more and records nothing more.
func (tree *Tree) hold(n int64) bool {
	if n == 0 {
		return true
	}
	room := tree.take(n)
	tree.mu.Lock()
	held := room && !tree.complete
	switch {
	case held:
		tree.taken += n
	case !room:
		tree.left++
	}
	tree.mu.Unlock()
	if room && !held {
		tree.give(n)
	}
	return room
}

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
	tree.traces = append(tree.traces, t) // bound: requests, which are charged
}

// frontLocked records an event of the front end; at 0 is now.
func (tree *Tree) frontLocked(t *Trace, name Name, at int64) {
	if tree.complete || !tree.config.Timestamps {
		return
	}
	if at == 0 {
		at = tree.config.Now()
	}
	if tree.config.FrontEndLast {
		tree.late = append(tree.late, Entry{Name: name, At: at}) // bound: events of the front end
		return
	}
	t.Entries = append(t.Entries, Entry{Name: name, At: at}) // bound: events of the front end
}

// unlock unlocks mu, and calls Done if the tree is complete.
func (tree *Tree) unlock() {
	over := tree.open == 0 && !tree.complete
	if over {
		tree.complete = true
		root := tree.traces[0]
		root.Entries = append(root.Entries, tree.late...) // bound: events of the front end
	}
	tree.mu.Unlock()
	if over {
		tree.config.Done(tree)
	}
}
