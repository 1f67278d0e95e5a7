package ratelimit

import (
	"container/heap"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Applicant has something to do for an instance that takes turns, and says what
// when its turn has come: until then a batch can grow, requests leave their line
// when their time is out, and those that wait are counted as waiting. It is called
// with nothing locked.
type Applicant interface {
	// Granted returns what an instance executes, as its turn has come; nil if there is
	// nothing any more.
	Granted(in *Instance) *backend.Batch
	// Settled is called when the instance has that, or has given its turn back.
	Settled()
}

// Apply asks for a turn. bls are the BLS requests among what waits.
func (in *Instance) Apply(by Applicant, bls []*infer.Request) {
	l := in.limiter
	l.mu.Lock()
	in.by, in.bls = by, bls
	l.stageLocked(in)
	l.mu.Unlock()
	l.allocate()
}

// Recall takes that back, unless the turn has come already: then nil is returned.
// Others may be next: what is returned is to be called with nothing locked, whereas
// recall may be called with a scheduler locked.
func (in *Instance) Recall() (others func()) {
	l := in.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.at == notStaged || in.by == nil {
		return nil
	}
	heap.Remove(&l.staged, in.at)
	in.by, in.bls = nil, nil
	return l.allocate
}

// Mention adds a BLS request to what waits for a turn: its callers may hold what the
// instance needs.
func (in *Instance) Mention(req *infer.Request) {
	l := in.limiter
	l.mu.Lock()
	if in.at == notStaged || in.by == nil {
		l.mu.Unlock()
		return
	}
	in.bls = append(in.bls, req)
	if !in.nested {
		in.nested = l.heldForLocked(in, nil) > 0
		heap.Fix(&l.staged, in.at)
	}
	l.mu.Unlock()
	l.allocate()
}

// grant has a candidate's batch executed, or the turn given back if there is none.
func (in *Instance) grant(by Applicant) {
	defer by.Settled() // also after a panic
	if in.begin(by) {
		in.execute()
	}
}

// begin asks a candidate what is to be executed.
func (in *Instance) begin(by Applicant) bool {
	var b *backend.Batch
	l := in.limiter
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		in.by, in.bls, in.batch = nil, nil, b
		if b == nil {
			l.releaseLocked(in)
		} else {
			l.holdLocked(in)
		}
	}()
	b = by.Granted(in)
	return b != nil
}

// LeastUsed returns the instance whose turn is next among members that take turns and of
// which none is staged.
func LeastUsed[M interface{ Instance() backend.Instance }](members []M) *Instance {
	var least *Instance
	for _, m := range members {
		in, ok := m.Instance().(*Instance)
		if !ok {
			continue
		}
		if least == nil {
			least = in
			in.limiter.mu.Lock()
			defer in.limiter.mu.Unlock()
		} else if in.score() < least.score() {
			least = in
		}
	}
	return least
}
