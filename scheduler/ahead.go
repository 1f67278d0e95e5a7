package scheduler

import "github.com/nereid-serving/nereid/backend"

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

// stuckLocked returns the instance that is to give its batch ahead back, as
// another is idle: of several the one whose batch begins with the oldest request. It is nil if
// there is none. Each is asked once for each batch.
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
