package scheduler

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// askLocked chooses, among idle instances that take turns, the instance that is to ask
// for the turn.
func (d *Batcher) askLocked() (in *ratelimit.Instance, bls []*infer.Request) {
	in = ratelimit.LeastUsed(d.idle)
	d.asked = in
	if d.waiting.bls > 0 {
		for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
			if r.task.Request.Caller != nil {
				bls = append(bls, r.task.Request)
			}
		}
	}
	return in, bls
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
	others := d.asked.Recall()
	if others == nil {
		return nothing // it is about to be settled
	}
	d.asked = nil
	return others
}

// reaskLocked has another instance asked for a turn in the place of an instance that gets
// no more batches. What it returns is to be called with nothing locked.
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

// applicant is a Batcher as a ratelimit.Applicant.
type applicant Batcher

// Granted implements ratelimit.Applicant.
func (a *applicant) Granted(in *ratelimit.Instance) *backend.Batch {
	d := (*Batcher)(a)
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
func (d *Batcher) turnOf(in *ratelimit.Instance) (b *batch, out []dropped) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.idleAtLocked(in); i >= 0 && d.waiting.length > 0 {
		if n, _ := d.readyLocked(true); n > 0 {
			b = newBatch(d.forming.picked[:n])
			on := d.idle[i]
			d.idle = slices.Delete(d.idle, i, i+1)
			on.executes = b
			d.givenLocked(b, on)
			d.leaveLinesLocked(b)
			d.config.Observer.Pending(-len(b.requests))
		}
	}
	out, d.dropped = d.dropped, nil
	return b, out
}

// Settled implements ratelimit.Applicant: the next instance can ask.
func (a *applicant) Settled() {
	d := (*Batcher)(a)
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
		in = r.batch.on.Instance()
	}
	asked := d.asked
	d.mu.Unlock()
	if in == nil && asked != nil && r.task.Request.Caller != nil {
		asked.Mention(r.task.Request)
	}
	return in
}
