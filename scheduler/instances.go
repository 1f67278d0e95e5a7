package scheduler

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/roster"
)

// member is an instance of the roster with what it has: nothing, one batch that it
// executes, or another ahead as well. An instance that is lost has nothing. All of it
// is guarded by the Batcher's mu, but for Member.Instance, which never changes.
type member struct {
	roster.Member
	executes, ahead *batch // from before Execute is called until Done is, or the instance is lost
	// handed is true when Execute of ahead has returned and it has not been asked
	// back yet: before that an instance could not give it back.
	handed bool
}

// takeLocked gives a batch to the instance that is to execute it, and returns
// it, nil if there is none: an idle one, else, if the batch is complete, one that
// executes and takes another ahead.
func (d *Batcher) takeLocked(b *batch, complete bool) (on *member, ahead bool) {
	if len(d.idle) > 0 && !d.takesTurns {
		on := d.restLocked(b.since())
		on.executes = b
		d.givenLocked(b, on)
		return on, false
	}
	if !complete || !d.prefetches || b.hasBLS() { // a BLS request might wait behind its own caller
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

// restful is how long no instance has been given anything before they take turns:
// their memory is cold and their processes sleep by then, whichever is next.
const restful = 100 * time.Millisecond

// restLocked takes the idle instance that is next for a request of a time: the one
// that was used last, whose memory is warm and whose process may not have fallen
// asleep, or, where requests come slowly, the instance that has rested longest.
func (d *Batcher) restLocked(now int64) *member {
	at := len(d.idle) - 1
	if now-d.rested >= int64(restful) {
		at = 0
	}
	on := d.idle[at]
	d.idle = slices.Delete(d.idle, at, at+1)
	return on
}

// givenLocked notes which instance has a batch.
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

// leaveLocked takes a batch off its instance, which goes on with the one
// ahead or becomes idle. It does nothing if the instance was lost meanwhile: its member
// has been emptied, and may have batches of the next life.
// What it returns is to be called with nothing locked.
func (d *Batcher) leaveLocked(b *batch) (drained func()) {
	on := b.on
	switch b {
	case on.executes:
		on.executes = on.ahead
	case on.ahead:
	default:
		return nothing
	}
	if next := on.ahead; next != nil { // it has left, or is executed now
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
		d.idle = append(d.idle, on)
		d.rested = max(d.rested, b.execution.Report.End)
	}
	return nothing
}

// begunLocked notes that an instance has begun a batch, or is done with it.
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
	if _, d.takesTurns = in.(*ratelimit.Instance); d.takesTurns {
		d.prefetches = false // no batch is formed before its turn
	}
	d.idle = append(d.idle, on)
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
	refused, lost := d.refuseAllLocked()
	then := d.reaskLocked(in)
	d.mu.Unlock()
	drained()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.fail(r, BackendFailure, backend.Unhealthy(lost.Name()))
	}
	then()
	if hopeless {
		d.config.Graph.Recheck(d.waitingBLS())
	}
}

// emptyLocked forgets what a lost instance has. The Done of those batches comes later;
// leaveLocked finds them with no member then, and leaves the instance's next life alone.
func (d *Batcher) emptyLocked(on *member) {
	if on.ahead != nil {
		d.aheads--
	}
	on.executes, on.ahead, on.handed = nil, nil, false
	d.idleNoMoreLocked(on)
}

// drainLocked removes a retiring instance that has nothing left. What it returns is to
// be called with nothing locked.
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

// idleAtLocked returns the place of an instance in idle, -1 if it is not idle.
func (d *Batcher) idleAtLocked(in backend.Instance) int {
	return slices.IndexFunc(d.idle, func(on *member) bool { return on.Instance() == in })
}

// refuseAllLocked takes all from the queue if there is no hope for any, and
// returns an instance that is why.
func (d *Batcher) refuseAllLocked() (refused []*request, lost backend.Instance) {
	if lost = d.instances.HopelessLocked(); lost != nil {
		for r := d.waiting.following(nil); r != nil; r = d.waiting.following(nil) {
			d.leaveLineLocked(r)
			refused = append(refused, r)
		}
	}
	return refused, lost
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
	refused, lost := d.refuseAllLocked()
	then := d.reaskLocked(in)
	d.mu.Unlock()
	drained()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.fail(r, BackendFailure, backend.Unhealthy(lost.Name()))
	}
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

// handed notes that an instance has a batch ahead, and reports whether another
// has become idle meanwhile.
func (d *Batcher) handed(on *member, b *batch) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on.ahead == b {
		on.handed = true
	}
	return len(d.idle) > 0
}

// stuckLocked returns the instance that is to give its batch ahead back, as another
// is idle: of several the one whose batch begins with the oldest request; nil if there
// is none. An instance is asked once for each batch.
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
	p, _ := from.Instance().(backend.Pipeliner) // it took one ahead
	return p
}

func takesAhead(in backend.Instance) bool {
	p, ok := in.(backend.Pipeliner)
	return ok && p.Ahead()
}

// since is when the first request of a batch was accepted.
func (b *batch) since() int64 { return b.requests[0].timing[0].Start }
