package scheduler

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
)

// place is where a request was, or a batch, and its counts, which tell whether
// it has moved.
type place struct {
	batch running // that it is in, or was in last; nil if there was none
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
func (g *Graph) hopeful(at station) bool {
	places, _, free := at.look()
	return free || slices.ContainsFunc(places, func(p place) bool { return !g.waits(p.batch, true) })
}

// look implements station.
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
	p := place{turns: r.turns}
	if r.batch != nil {
		p.batch = r.batch
	}
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

// The methods of a waiter.
func (r *request) model() string    { return r.scheduler.config.Model }
func (r *request) station() station { return r.scheduler }
func (r *request) where() place     { return r.scheduler.locate(r) }
func (r *request) takeBack() bool   { return r.scheduler.takeBack(r) }
func (r *request) out()             { r.scheduler.out() }
func (r *request) refuse(err error) { r.scheduler.fail(r, Rejected, err) }

// The methods of what is running.
func (b *batch) model() string          { return b.scheduler().config.Model }
func (b *batch) where() place           { return b.scheduler().place(b) }
func (b *batch) tasks() []*backend.Task { return b.Tasks }

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
