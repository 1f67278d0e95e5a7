package scheduler

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/roster"
)

// member is an instance with its batches: none, one that it executes, or also one ahead. A lost
// instance has none. Batcher.mu guards everything except Member.Instance, which never changes.
type member struct {
	roster.Member
	executes, ahead *batch // from before Execute until Done, or until the instance is lost
	// handed is true when Execute of ahead has returned and the batch has not been withdrawn.
	// Before that an instance could not return it.
	handed bool
}

// takeLocked assigns a batch to an idle instance or, if the batch is complete, to an executing
// instance that takes it ahead, or returns nil.
func (d *Batcher) takeLocked(b *batch, complete bool) (on *member, ahead bool) {
	if len(d.idle) > 0 && !d.takesTurns {
		on := d.restLocked(b.since())
		on.executes = b
		d.givenLocked(b, on)
		return on, false
	}
	if !complete || !d.prefetches || b.hasBLS() { // a BLS request could wait for its own caller
		return nil, false
	}
	for _, on := range d.instances.MembersLocked() {
		if on.executes != nil && on.ahead == nil && !on.RetiringLocked() && takesAhead(on.Instance()) {
			on.ahead, on.handed = b, false
			d.aheads++
			d.givenLocked(b, on)
			b.pending = true
			return on, true
		}
	}
	return nil, false
}

// restful is the pause after which instances take turns: by then the memory of each is cold and its
// process sleeps.
const restful = 100 * time.Millisecond

// restLocked takes an idle instance: the most recently used, whose memory is warm and whose process
// may still be awake; or, if requests are rare, the least recently used.
func (d *Batcher) restLocked(now int64) *member {
	at := len(d.idle) - 1
	if now-d.rested >= int64(restful) {
		at = 0
	}
	on := d.idle[at]
	d.idle = slices.Delete(d.idle, at, at+1)
	return on
}

// givenLocked records which instance has a batch.
func (d *Batcher) givenLocked(b *batch, on *member) {
	b.on = on
	for _, r := range b.requests {
		r.batch = b
		r.turns++
		if d.order != nil && r.task.Request.Caller == nil {
			d.order.enter(r)
		}
	}
}

// leaveLocked removes a batch from its instance, which continues with the one ahead or becomes
// idle. It does nothing if the instance was lost meanwhile: its member may already have batches of
// the next life. The result is called after unlocking.
func (d *Batcher) leaveLocked(b *batch) (drained func()) {
	on := b.on
	switch b {
	case on.executes:
		on.executes = on.ahead
	case on.ahead:
	default:
		return nothing
	}
	if next := on.ahead; next != nil { // it is executed now, or is the one that leaves
		on.ahead = nil
		d.aheads--
		if next != b {
			d.begunLocked(next)
		}
	}
	switch {
	case on.executes != nil:
	case on.RetiringLocked():
		return d.drainLocked(on)
	default:
		d.idle = append(d.idle, on) // bound: the instances
		d.rested = max(d.rested, b.execution.Report.End)
	}
	return nothing
}

// begunLocked records that an instance has begun a batch, or is done with it.
func (d *Batcher) begunLocked(b *batch) {
	if b.pending {
		b.pending = false
		d.config.Observer.Pending(-len(b.requests))
	}
}

func nothing() {}

// Available implements backend.Events.
func (d *Batcher) Available(in backend.Instance) {
	d.mu.Lock()
	on, ok := d.instances.MeetLocked(in)
	if !ok || on.RetiringLocked() {
		d.mu.Unlock()
		return
	}
	d.instances.AvailableLocked(on)
	if d.takesTurns = in.Capabilities().TurnTaker != nil; d.takesTurns {
		d.prefetches = false // batches are formed when their turn comes
	}
	d.idle = append(d.idle, on) // bound: the instances
	d.mu.Unlock()
	d.dispatch()
}

// Lost implements backend.Events.
func (d *Batcher) Lost(in backend.Instance, hopeless bool) {
	d.mu.Lock()
	drained := nothing
	if on, ok := d.instances.LostLocked(in, hopeless); ok {
		d.emptyLocked(on)
		if on.RetiringLocked() {
			drained = d.drainLocked(on)
		}
	}
	then := d.withoutLocked(in)
	d.mu.Unlock()
	drained()
	then()
	if hopeless {
		d.config.Graph.Recheck(d.waitingBLS())
	}
}

// emptyLocked removes the batches of a lost instance. Their Done follows later; leaveLocked then
// finds no member that has them.
func (d *Batcher) emptyLocked(on *member) {
	if on.ahead != nil {
		d.aheads--
	}
	on.executes, on.ahead, on.handed = nil, nil, false
	d.idleNoMoreLocked(on)
}

// drainLocked removes a retiring instance without batches. The result is called after unlocking.
func (d *Batcher) drainLocked(on *member) (drained func()) {
	d.idleNoMoreLocked(on)
	if drained := d.instances.DrainLocked(on); drained != nil {
		return drained
	}
	return nothing
}

func (d *Batcher) idleNoMoreLocked(on *member) {
	if i := slices.Index(d.idle, on); i >= 0 {
		d.idle = slices.Delete(d.idle, i, i+1)
	}
}

// idleAtLocked returns the index of an instance in idle, or -1.
func (d *Batcher) idleAtLocked(in backend.Instance) int {
	return slices.IndexFunc(d.idle, func(on *member) bool { return on.Instance() == in })
}

// withoutLocked adapts the queue to an instance that gets no more batches. If every other
// instance is hopeless too, all queued requests fail. The caller calls then after unlocking.
func (d *Batcher) withoutLocked(in backend.Instance) (then func()) {
	var refused []*request
	lost := d.instances.HopelessLocked()
	for r := d.waiting.following(nil); r != nil && lost != nil; r = d.waiting.following(nil) {
		d.leaveLineLocked(r)
		refused = append(refused, r) // bound: requests, which are charged
	}
	ask := d.reaskLocked(in)
	return func() {
		for _, r := range refused {
			d.config.Observer.Pending(-1)
			d.fail(r, BackendFailure, backend.Unhealthy(lost.Name()))
		}
		ask()
	}
}

// Retire implements Scheduler.
func (d *Batcher) Retire(in backend.Instance, drained func()) (answered bool) {
	d.mu.Lock()
	answered = true
	if on, known := d.instances.RetireLocked(in, drained); known {
		drained, answered = nothing, on.executes.answered() && on.ahead.answered()
		if on.executes == nil {
			drained = d.drainLocked(on)
		}
	}
	then := d.withoutLocked(in)
	d.mu.Unlock()
	drained()
	then()
	d.config.Graph.Recheck(d.waitingBLS())
	return answered
}

// Forget implements Scheduler.
func (d *Batcher) Forget(in backend.Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.instances.ForgetLocked(in)
}

// handed records that an instance has its batch ahead, and reports whether another is idle.
func (d *Batcher) handed(on *member, b *batch) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on.ahead == b {
		on.handed = true
	}
	return len(d.idle) > 0
}

// stuckLocked returns the instance from which to withdraw a batch ahead for an idle instance: the
// one whose batch has the oldest request, or nil. Each batch is withdrawn once.
func (d *Batcher) stuckLocked() backend.Pipeliner {
	if len(d.idle) == 0 || d.aheads == 0 {
		return nil
	}
	var from *member
	for _, on := range d.instances.MembersLocked() {
		if on.handed && on.ahead != nil && (from == nil || on.ahead.since() < from.ahead.since()) {
			from = on
		}
	}
	if from == nil {
		return nil
	}
	from.handed = false
	return from.Instance().Capabilities().Pipeliner // only a Pipeliner has a batch ahead
}

func takesAhead(in backend.Instance) bool {
	p := in.Capabilities().Pipeliner
	return p != nil && p.Ahead()
}

// since returns when the first request of a batch was accepted.
func (b *batch) since() int64 { return b.requests[0].timing[0].Start }
