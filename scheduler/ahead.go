package scheduler

import "github.com/nereid-serving/nereid/backend"

// handed notes that an instance has a request ahead, and reports whether another
// has become idle meanwhile.
func (d *Batcher) handed(in backend.Instance, r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.up[in]; has != nil && has.ahead == r {
		has.handed = true
	}
	return len(d.idle) > 0
}

// stuckLocked returns the instance that is to give its request ahead back, as
// another is idle: of several the one whose request is the oldest. It is nil if
// there is none. Each is asked once for each request.
func (d *Batcher) stuckLocked() backend.Pipeliner {
	if len(d.idle) == 0 || d.aheads == 0 {
		return nil
	}
	var from backend.Instance
	for in, has := range d.up {
		if has.handed && has.ahead != nil && (from == nil || has.ahead.timing[0].Start < d.up[from].ahead.timing[0].Start) {
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
