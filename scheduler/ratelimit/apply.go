package ratelimit

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Apply implements backend.TurnTaker.
func (in *instance) Apply(by backend.Applicant, bls []*infer.Request) {
	l := in.limiter
	l.mu.Lock()
	in.by, in.bls = by, bls
	l.stageLocked(in)
	l.mu.Unlock()
	l.allocate()
}

// Recall implements backend.TurnTaker.
func (in *instance) Recall() (others func()) {
	l := in.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.staged.Has(in) || in.by == nil {
		return nil
	}
	l.staged.Remove(in)
	in.by, in.bls = nil, nil
	return l.allocate
}

// Mention implements backend.TurnTaker.
func (in *instance) Mention(req *infer.Request) {
	l := in.limiter
	l.mu.Lock()
	if !l.staged.Has(in) || in.by == nil {
		l.mu.Unlock()
		return
	}
	in.bls = append(in.bls, req) // bound: BLS requests, which are charged
	if !in.nested {
		in.nested = l.heldForLocked(in, nil) > 0
		l.staged.Fix(in)
	}
	l.mu.Unlock()
	l.allocate()
}

// grant executes the batch of an applicant, or gives the turn back.
func (in *instance) grant(by backend.Applicant) {
	defer by.Settled() // also after a panic
	if in.begin(by) {
		in.execute()
	}
}

// begin asks an applicant for its batch.
func (in *instance) begin(by backend.Applicant) bool {
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

// Score implements backend.TurnTaker.
func (in *instance) Score() uint64 {
	in.limiter.mu.Lock()
	defer in.limiter.mu.Unlock()
	return in.score()
}
