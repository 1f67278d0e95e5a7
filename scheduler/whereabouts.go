package scheduler

import "github.com/nereid-serving/nereid/backend"

// Look implements station.
func (d *Batcher) Look() (places []place, changes uint64, free bool) {
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
	p := place{turns: r.turns}
	if r.batch != nil {
		p.batch = r.batch
	}
	if r.call != nil {
		p.sent = r.call.Responses()
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

// The methods of a waiter.
func (r *request) Model() string    { return r.scheduler.config.Model }
func (r *request) Station() station { return r.scheduler }
func (r *request) Where() place     { return r.scheduler.locate(r) }
func (r *request) TakeBack() bool   { return r.scheduler.takeBack(r) }
func (r *request) Out()             { r.scheduler.out() }
func (r *request) Refuse(err error) { r.scheduler.fail(r, Rejected, err) }

// The methods of what is running.
func (b *batch) Model() string            { return b.scheduler().config.Model }
func (b *batch) Where() place             { return b.scheduler().place(b) }
func (b *batch) Members() []*backend.Task { return b.Tasks }

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
			p.sent += r.call.Responses()
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
	then := nothing
	if was {
		d.leaveLineLocked(r)
		then = d.recallIdleLocked()
	}
	d.mu.Unlock()
	if was {
		d.config.Observer.Pending(-1)
	}
	then()
	return was
}

// out counts a request that was accepted and is refused after all.
func (d *Batcher) out() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outLocked()
}
