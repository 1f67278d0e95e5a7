package ratelimit

import (
	"container/heap"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Applicant is a scheduler that chooses its batch when its turn has come. Until then a batch can
// grow, requests can expire, and queued requests count as pending. It is called with nothing
// locked.
type Applicant interface {
	// Granted returns the batch for an instance whose turn has come, or nil.
	Granted(in *Instance) *backend.Batch
	// Settled is called when the instance has the batch, or has given its turn back.
	Settled()
}

// Apply asks for a turn. bls are the BLS requests that wait for it.
func (in *Instance) Apply(by Applicant, bls []*infer.Request) {
	l := in.limiter
	l.mu.Lock()
	in.by, in.bls = by, bls
	l.stageLocked(in)
	l.mu.Unlock()
	l.allocate()
}

// Recall withdraws the request for a turn, or returns nil if the turn has already come. The result
// is called with nothing locked, as others may be next. Recall may be called with a scheduler
// locked.
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

// Mention adds a BLS request that waits for the turn: its callers may hold resources that the
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

// grant executes the batch of an applicant, or gives the turn back.
func (in *Instance) grant(by Applicant) {
	defer by.Settled() // also after a panic
	if in.begin(by) {
		in.execute()
	}
}

// begin asks an applicant for its batch.
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

// LeastUsed returns the instance whose turn is next. None of the members is staged.
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
