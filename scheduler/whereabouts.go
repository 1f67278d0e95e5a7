package scheduler

import "slices"

// place is where a request was, or a batch, and its counts, which tell whether
// it has moved.
type place struct {
	batch *batch // that it is in, or was in last
	where whereabouts
	turns uint32 // executions begun
	sent  uint32 // responses, of calls
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
	return free || slices.ContainsFunc(places, func(p place) bool { return !d.config.Graph.waits(p.batch, true) })
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
		places = append(places, d.placeLocked(has.executes))
	}
	return places, d.changes, false
}

func (d *Batcher) locate(r *request) place {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := place{batch: r.batch, turns: r.turns}
	if r.call != nil {
		p.sent = r.call.sent.Load()
	}
	switch {
	case r.ended || r.queued && r.task.Context.Err() != nil:
		p.where = over
	case r.queued:
		p.where = queued
	case d.executesLocked(r.batch):
		p.where = executed
	}
	return p
}

func (d *Batcher) executesLocked(b *batch) bool {
	if b == nil {
		return false
	}
	has := d.up[b.instance]
	return has != nil && has.executes == b
}

// place is where a batch is: executed or elsewhere.
func (d *Batcher) place(b *batch) place {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.placeLocked(b)
}

func (d *Batcher) placeLocked(b *batch) place {
	p := place{batch: b}
	for _, r := range b.requests {
		p.turns += r.turns
		if r.call != nil {
			p.sent += r.call.sent.Load()
		}
	}
	if d.executesLocked(b) {
		p.where = executed
	}
	return p
}

// waitingCalls lists the requests of models that wait.
func (d *Batcher) waitingCalls() []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*call
	for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
		if r.call != nil {
			list = append(list, r.call)
		}
	}
	return list
}

// takeBack takes a request from its line, if it waits.
func (d *Batcher) takeBack(r *request) bool {
	d.mu.Lock()
	was := r.queued
	if was {
		d.leaveLineLocked(r)
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
