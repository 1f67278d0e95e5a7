package scheduler

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// load is what an instance has: nothing, one batch that it executes, or another
// ahead as well.
type load struct {
	executes, ahead *batch
	// handed is true when Execute of ahead has returned and it has not been asked
	// back yet: before that an instance could not give it back.
	handed bool
	// drained, if not nil, is to be called when the instance has nothing more, as
	// it gets nothing more.
	drained func()
}

// takeLocked gives a batch to the instance that is to execute it, and returns
// it, nil if there is none: an idle one, else, if the batch is complete, one that
// executes and takes another ahead.
func (d *Batcher) takeLocked(b *batch, complete bool) (in backend.Instance, ahead bool) {
	if len(d.idle) > 0 && !d.takesTurns {
		in := d.restLocked(b.since())
		d.up[in].executes = b
		d.givenLocked(b, in)
		return in, false
	}
	if !complete || !d.prefetches || b.hasCall() { // a call might wait behind its own caller
		return nil, false
	}
	for in, has := range d.up {
		if has.executes != nil && has.ahead == nil && has.drained == nil && takesAhead(in) {
			has.ahead, has.handed = b, false
			d.aheads++
			d.givenLocked(b, in)
			b.pending = true
			return in, true
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
func (d *Batcher) restLocked(now int64) backend.Instance {
	at := len(d.idle) - 1
	if now-d.rested >= int64(restful) {
		at = 0
	}
	in := d.idle[at]
	d.idle = slices.Delete(d.idle, at, at+1)
	return in
}

// givenLocked notes which instance has a batch.
func (d *Batcher) givenLocked(b *batch, in backend.Instance) {
	b.instance = in
	for _, r := range b.requests {
		r.batch = b
		r.turns++
		if d.order != nil && r.task.Request.Caller == nil {
			d.order.enter(r)
		}
	}
}

// leaveLocked takes a batch off its instance, which goes on with the one
// ahead or becomes idle. It does nothing if the instance was lost meanwhile.
// What it returns is to be called with nothing locked.
func (d *Batcher) leaveLocked(b *batch) (drained func()) {
	in := b.instance
	has := d.up[in]
	switch {
	case has == nil:
		return nothing
	case has.executes == b:
		has.executes = has.ahead
	case has.ahead != b:
		return nothing
	}
	if next := has.ahead; next != nil { // it has left, or is executed now
		has.ahead = nil
		d.aheads--
		if next != b {
			d.begunLocked(next)
		}
	}
	switch {
	case has.executes != nil:
	case has.drained != nil:
		delete(d.up, in)
		d.retiring--
		d.changes++
		return has.drained
	default:
		d.idle = append(d.idle, in)
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

// hopelessLocked returns an instance if there is none that could ever execute
// something soon.
func (d *Batcher) hopelessLocked() backend.Instance {
	if len(d.up) > d.retiring {
		return nil
	}
	for in := range d.hopeless {
		if d.hopeless[in] {
			continue
		}
		return nil // it is being restarted
	}
	for in := range d.hopeless {
		return in
	}
	return nil
}

// Unhealthy is the error of a request that only an instance that is down could execute.
func Unhealthy(in backend.Instance) error {
	return backend.Unhealthy(in.Name())
}

// Available implements backend.Events.
func (d *Batcher) Available(in backend.Instance) {
	d.mu.Lock()
	if d.retired[in] {
		d.mu.Unlock()
		return
	}
	d.up[in] = &load{}
	d.changes++
	delete(d.hopeless, in)
	if _, d.takesTurns = in.(*ratelimit.Instance); d.takesTurns {
		d.prefetches = false // no batch is formed before its turn
	}
	d.idle = append(d.idle, in)
	d.mu.Unlock()
	d.dispatch()
}

// Lost implements backend.Events.
func (d *Batcher) Lost(in backend.Instance, hopeless bool) {
	d.mu.Lock()
	drained := d.removeLocked(in)
	switch {
	case !d.retired[in]:
		d.hopeless[in] = hopeless
	case hopeless:
		delete(d.retired, in) // it has ended, and is kept no longer
	}
	refused, lost := d.refuseAllLocked()
	then := d.reaskLocked(in)
	d.mu.Unlock()
	drained()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.fail(r, BackendFailure, Unhealthy(lost))
	}
	then()
	if hopeless {
		d.config.Graph.Recheck(d.waitingCalls())
	}
}

// removeLocked forgets an instance that is up and returns what is to be called
// with nothing locked.
func (d *Batcher) removeLocked(in backend.Instance) (drained func()) {
	drained = nothing
	if has := d.up[in]; has != nil {
		if has.ahead != nil {
			d.aheads--
		}
		if has.drained != nil {
			drained = has.drained
			d.retiring--
		}
	}
	delete(d.up, in)
	d.changes++
	d.idleNoMoreLocked(in)
	return drained
}

func (d *Batcher) idleNoMoreLocked(in backend.Instance) {
	if i := slices.Index(d.idle, in); i >= 0 {
		d.idle = slices.Delete(d.idle, i, i+1)
	}
}

// refuseAllLocked takes all from the queue if there is no hope for any, and
// returns an instance that is why.
func (d *Batcher) refuseAllLocked() (refused []*request, lost backend.Instance) {
	if lost = d.hopelessLocked(); lost != nil {
		for r := d.waiting.following(nil); r != nil; r = d.waiting.following(nil) {
			d.leaveLineLocked(r)
			refused = append(refused, r)
		}
	}
	return refused, lost
}

// Retire implements Scheduler.
func (d *Batcher) Retire(in backend.Instance, drained func()) {
	d.mu.Lock()
	d.retired[in] = true
	delete(d.hopeless, in)
	d.changes++
	if has := d.up[in]; has != nil && has.executes != nil {
		has.drained = drained
		d.retiring++
		drained = nothing
	} else {
		d.removeLocked(in)
	}
	refused, lost := d.refuseAllLocked()
	then := d.reaskLocked(in)
	d.mu.Unlock()
	drained()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.fail(r, BackendFailure, Unhealthy(lost))
	}
	then()
	d.config.Graph.Recheck(d.waitingCalls())
}

// handed notes that an instance has a batch ahead, and reports whether another
// has become idle meanwhile.
func (d *Batcher) handed(in backend.Instance, b *batch) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.up[in]; has != nil && has.ahead == b {
		has.handed = true
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
	var from backend.Instance
	for in, has := range d.up {
		if has.handed && has.ahead != nil && (from == nil || has.ahead.since() < d.up[from].ahead.since()) {
			from = in
		}
	}
	if from == nil {
		return nil
	}
	d.up[from].handed = false
	p, _ := from.(backend.Pipeliner) // it took one ahead
	return p
}

func takesAhead(in backend.Instance) bool {
	p, ok := in.(backend.Pipeliner)
	return ok && p.Ahead()
}

// since is when the first request of a batch was accepted.
func (b *batch) since() int64 { return b.requests[0].timing[0].Start }
