package scheduler

import (
	"math"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// askLocked chooses the idle instance that asks for a turn.
func (d *Batcher) askLocked() (in backend.TurnTaker, bls []*infer.Request) {
	lowest := uint64(math.MaxUint64)
	for _, on := range d.idle {
		t := on.Instance().Capabilities().TurnTaker
		if score := t.Score(); in == nil || score < lowest {
			in, lowest = t, score
		}
	}
	d.asked = in
	if d.waiting.bls > 0 {
		for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
			if r.task.Request.Caller != nil {
				bls = append(bls, r.task.Request) // bound: requests, which are charged
			}
		}
	}
	return in, bls
}

// recallIdleLocked withdraws the request for a turn if no request is queued. The result is called
// after unlocking.
func (d *Batcher) recallIdleLocked() (then func()) {
	if d.asked == nil || d.waiting.length > 0 {
		return nothing
	}
	return d.recallLocked()
}

func (d *Batcher) recallLocked() (then func()) {
	others := d.asked.Recall()
	if others == nil {
		return nothing // its turn has come
	}
	d.asked = nil
	return others
}

// reaskLocked asks for a turn of another instance if gone was about to have one. The result is
// called after unlocking.
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

// applicant is a Batcher as a backend.Applicant.
type applicant Batcher

// Granted implements backend.Applicant.
func (a *applicant) Granted(in backend.TurnTaker) *backend.Batch {
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

// turnOf returns the batch that is due for the instance, or nil. The caller answers the dropped
// requests.
func (d *Batcher) turnOf(in backend.TurnTaker) (b *batch, out []dropped) {
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

// Settled implements backend.Applicant: another instance can ask.
func (a *applicant) Settled() {
	d := (*Batcher)(a)
	d.mu.Lock()
	d.asked = nil
	d.mu.Unlock()
	d.dispatch()
}

// turnsTo returns the instance that already has a new request, or nil. A queued BLS request is
// mentioned to the instance that asks for a turn.
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
