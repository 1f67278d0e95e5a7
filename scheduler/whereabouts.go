package scheduler

import "slices"

// place is where a request was, and its counts, which tell whether it has moved.
type place struct {
	request *request
	where   whereabouts
	turns   uint32 // executions begun
	sent    uint32 // responses, of a call
}

type whereabouts uint8

const (
	elsewhere whereabouts = 0 // on its way, or done with its instance
	queued    whereabouts = 1
	executed  whereabouts = 2
	over      whereabouts = 3 // or about to be: its client has gone
)

// hopeful reports at a glance whether an instance will be free: most are.
func (d *Batcher) hopeful() bool {
	places, _, free := d.look()
	return free || slices.ContainsFunc(places, func(p place) bool { return !d.config.Graph.waits(p.request.task.Request, true) })
}

// look returns what the instances execute, a count of instances that came and
// went, and whether one is idle, or is being restarted.
func (d *Batcher) look() (places []place, changes uint64, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free = len(d.idle) > 0 || len(d.up)+len(d.hopeless) == 0 // none at all: some are to come
	for _, hopeless := range d.hopeless {
		free = free || !hopeless
	}
	if free {
		return nil, d.changes, true
	}
	for _, has := range d.up {
		if has.drained != nil {
			continue // it takes no other
		}
		places = append(places, d.locateLocked(has.executes))
	}
	return places, d.changes, false
}

func (d *Batcher) locate(r *request) place {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locateLocked(r)
}

func (d *Batcher) locateLocked(r *request) place {
	p := place{request: r, turns: r.turns}
	if r.call != nil {
		p.sent = r.call.sent.Load()
	}
	switch has := d.up[r.instance]; {
	case r.ended || r.queued && r.task.Context.Err() != nil:
		p.where = over
	case r.queued:
		p.where = queued
	case has != nil && has.executes == r:
		p.where = executed
	}
	return p
}

// waitingCalls lists the requests of models that wait.
func (d *Batcher) waitingCalls() []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*call
	for r := d.waiting.first; r != nil; r = r.after {
		if r.call != nil {
			list = append(list, r.call)
		}
	}
	return list
}

// takeBack takes a request from the queue, if it waits.
func (d *Batcher) takeBack(r *request) bool {
	d.mu.Lock()
	was := r.queued
	if was {
		d.waiting.remove(r)
	}
	d.mu.Unlock()
	if was {
		d.config.Observer.Pending(-1)
	}
	return was
}

// out counts a request that was accepted and is refused after all.
func (d *Batcher) out() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outLocked()
}
