package scheduler

import (
	"container/heap"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// applicant has something to do for an instance that takes turns, and says what
// when its turn has come: until then a batch can grow, requests leave their line
// when their time is out, and those that wait are counted as waiting. It is called
// with nothing locked.
type applicant interface {
	// granted returns what an instance executes, as its turn has come; nil if there is
	// nothing any more.
	granted(in *limited) *backend.Batch
	// settled is called when the instance has that, or has given its turn back.
	settled()
}

// apply asks for a turn. Calls are those among what waits that models have made.
func (in *limited) apply(by applicant, calls []*infer.Request) {
	l := in.limiter
	l.mu.Lock()
	in.by, in.calls = by, calls
	l.stageLocked(in)
	l.mu.Unlock()
	l.allocate()
}

// recall takes that back. It reports whether the turn had not come yet; if so,
// others may be next. It may be called with a scheduler locked, allocate not.
func (in *limited) recall() bool {
	l := in.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.at == notStaged || in.by == nil {
		return false
	}
	heap.Remove(&l.staged, in.at)
	in.by, in.calls = nil, nil
	return true
}

// mention adds a call to what waits for a turn: its callers may hold what the
// instance needs.
func (in *limited) mention(call *infer.Request) {
	l := in.limiter
	l.mu.Lock()
	if in.at == notStaged || in.by == nil {
		l.mu.Unlock()
		return
	}
	in.calls = append(in.calls, call)
	if !in.nested {
		in.nested = l.heldForLocked(in, nil) > 0
		heap.Fix(&l.staged, in.at)
	}
	l.mu.Unlock()
	l.allocate()
}

// grant has an applicant's batch executed, or the turn given back if there is none.
func (in *limited) grant(by applicant) {
	defer by.settled() // also after a panic
	if in.begin(by) {
		in.execute()
	}
}

// begin asks an applicant what is to be executed.
func (in *limited) begin(by applicant) bool {
	var b *backend.Batch
	l := in.limiter
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		in.by, in.calls, in.batch = nil, nil, b
		if b == nil {
			l.releaseLocked(in)
		} else {
			l.holdLocked(in)
		}
	}()
	b = by.granted(in)
	return b != nil
}

// leastUsed returns the instance that is next among some that take turns, which
// is none of those that are staged.
func leastUsed(instances []backend.Instance) *limited {
	var least *limited
	for _, x := range instances {
		in, ok := x.(*limited)
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

// askLocked chooses, among idle instances that take turns, the one that is to ask
// for the turn.
func (d *Batcher) askLocked() (in *limited, calls []*infer.Request) {
	in = leastUsed(d.idle)
	d.asked = in
	if d.waiting.calls > 0 {
		for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
			if r.task.Request.Caller != nil {
				calls = append(calls, r.task.Request)
			}
		}
	}
	return in, calls
}

// recallIdleLocked takes the wish for a turn back if nothing waits any more. What
// it returns is to be called with nothing locked.
func (d *Batcher) recallIdleLocked() (then func()) {
	if d.asked == nil || d.waiting.length > 0 {
		return nothing
	}
	return d.recallLocked()
}

func (d *Batcher) recallLocked() (then func()) {
	in := d.asked
	if !in.recall() {
		return nothing // it is about to be settled
	}
	d.asked = nil
	return in.limiter.allocate
}

// reaskLocked has another instance asked for a turn in the place of one that gets
// nothing more. What it returns is to be called with nothing locked.
func (d *Batcher) reaskLocked(gone backend.Instance) (then func()) {
	if d.asked == nil || backend.Instance(d.asked) != gone {
		return nothing
	}
	allocate := d.recallLocked()
	return func() {
		allocate()
		d.dispatch()
	}
}

// granted implements applicant.
func (d *Batcher) granted(in *limited) *backend.Batch {
	b, out := d.turnOf(in)
	for _, o := range out {
		o.answer()
	}
	if b == nil {
		return nil
	}
	return &b.Batch
}

// turnOf gives an instance whose turn it is the batch that is due, nil if none is.
// The others that it returns are to be answered.
func (d *Batcher) turnOf(in *limited) (b *batch, out []dropped) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.up[in]; has != nil && has.executes == nil && d.waiting.length > 0 {
		if n, _ := d.readyLocked(true); n > 0 {
			b = newBatch(d.forming.picked[:n])
			d.idleNoMoreLocked(in)
			has.executes = b
			d.givenLocked(b, in)
			d.leaveLinesLocked(b)
			d.config.Observer.Pending(-len(b.requests))
		}
	}
	out, d.dropped = d.dropped, nil
	return b, out
}

// settled implements applicant: the next one can be asked.
func (d *Batcher) settled() {
	d.mu.Lock()
	d.asked = nil
	d.mu.Unlock()
	d.dispatch()
}

// turnsTo looks whether an instance has had its turn with a request that has just
// come, and returns it, nil if there is none. One that waits on is mentioned if a
// model has made it.
func (d *Batcher) turnsTo(r *request) backend.Instance {
	d.mu.Lock()
	var in backend.Instance
	if r.batch != nil {
		in = r.batch.instance
	}
	asked := d.asked
	d.mu.Unlock()
	if in == nil && asked != nil && r.task.Request.Caller != nil {
		asked.mention(r.task.Request)
	}
	return in
}
