package scheduler

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// load is what an instance has: nothing, one request that it executes, or
// another ahead as well.
type load struct {
	executes, ahead *request
	// handed is true when Execute of ahead has returned and it has not been asked
	// back yet: before that an instance could not give it back.
	handed bool
}

// takeLocked returns the instance that is to be given a request now, nil if
// there is none: an idle one, else one that executes and takes another ahead.
func (d *Direct) takeLocked(r *request) (in backend.Instance, ahead bool) {
	if n := len(d.idle); n > 0 {
		in := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.up[in].executes = r
		r.instance, r.turns = in, r.turns+1
		return in, false
	}
	if r.task.Request.Caller != nil {
		return nil, false // it might wait behind its own caller
	}
	for in, has := range d.up {
		if has.executes != nil && has.ahead == nil && takesAhead(in) {
			has.ahead, has.handed = r, false
			d.aheads++
			r.instance, r.turns = in, r.turns+1
			return in, true
		}
	}
	return nil, false
}

// leaveLocked takes a request off its instance, which goes on with the one
// ahead or becomes idle. It does nothing if the instance was lost meanwhile.
func (d *Direct) leaveLocked(r *request) {
	in := r.instance
	has := d.up[in]
	switch {
	case has == nil:
		return
	case has.executes == r:
		has.executes = has.ahead
	case has.ahead != r:
		return
	}
	if has.ahead != nil { // it has left, or is executed now
		has.ahead = nil
		d.aheads--
	}
	if has.executes == nil {
		d.idle = append(d.idle, in)
	}
}

// hopelessLocked returns an instance if there is none that could ever execute
// something soon.
func (d *Direct) hopelessLocked() backend.Instance {
	if len(d.up) > 0 {
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

func unhealthy(in backend.Instance) error {
	return infer.Errorf(infer.Internal, "Stub process '%s' is not healthy.", in.Name())
}

// Up implements backend.Events.
func (d *Direct) Up(in backend.Instance) {
	d.mu.Lock()
	d.up[in] = &load{}
	d.changes++
	delete(d.hopeless, in)
	d.idle = append(d.idle, in)
	d.mu.Unlock()
	d.dispatch()
}

// Down implements backend.Events.
func (d *Direct) Down(in backend.Instance, hopeless bool) {
	d.mu.Lock()
	if has := d.up[in]; has != nil && has.ahead != nil {
		d.aheads--
	}
	delete(d.up, in)
	d.changes++
	d.hopeless[in] = hopeless
	for i, other := range d.idle {
		if other == in {
			d.idle = append(d.idle[:i], d.idle[i+1:]...)
			break
		}
	}
	var refused []*request
	if d.hopelessLocked() != nil {
		for r := d.waiting.pop(); r != nil; r = d.waiting.pop() {
			refused = append(refused, r)
		}
	}
	d.mu.Unlock()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.config.Observer.Failed(BackendFailure, r.timing[0].Start)
		r.deliver(infer.ErrorResponse(unhealthy(in)))
	}
	if hopeless {
		d.config.Graph.recheck(d)
	}
}
