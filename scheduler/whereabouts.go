package scheduler

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// Look implements waitgraph.Station.
func (d *Batcher) Look() (places []waitgraph.Place, changes uint64, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes = d.instances.ChangesLocked()
	if len(d.idle) > 0 || d.instances.ExpectsLocked() {
		return nil, changes, true
	}
	for _, has := range d.instances.MembersLocked() {
		if has.ServesLocked() {
			places = append(places, d.placeLocked(has.executes))
		}
	}
	return places, changes, false
}

func (d *Batcher) locate(r *request) waitgraph.Place {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := waitgraph.Place{Turns: r.turns}
	if r.batch != nil {
		p.Batch = r.batch
	}
	if r.BLS != nil {
		p.Sent = r.BLS.Responses()
	}
	switch {
	case r.ended || r.queued && r.task.Context.Err() != nil:
		p.Where = waitgraph.Over
	case r.queued:
		p.Where = waitgraph.Queued
	case d.executesLocked(r.batch):
		p.Where = waitgraph.Executed
	}
	return p
}

func (d *Batcher) executesLocked(b *batch) bool {
	return b != nil && b.on != nil && b.on.executes == b
}

// The methods of a waitgraph.Waiter.
func (r *request) Model() string              { return r.scheduler.config.Model }
func (r *request) Station() waitgraph.Station { return r.scheduler }
func (r *request) Where() waitgraph.Place     { return r.scheduler.locate(r) }
func (r *request) TakeBack() bool             { return r.scheduler.takeBack(r) }
func (r *request) Out()                       { r.scheduler.out() }
func (r *request) Refuse(err error)           { r.scheduler.fail(r, Rejected, err) }

// The methods of a waitgraph.Batch.
func (b *batch) Model() string            { return b.scheduler().config.Model }
func (b *batch) Where() waitgraph.Place   { return b.scheduler().place(b) }
func (b *batch) Members() []*backend.Task { return b.Tasks }

// place is where a batch is: executed or elsewhere.
func (d *Batcher) place(b *batch) waitgraph.Place {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.placeLocked(b)
}

func (d *Batcher) placeLocked(b *batch) waitgraph.Place {
	p := waitgraph.Place{Batch: b}
	for _, r := range b.requests {
		p.Turns += r.turns
		if r.BLS != nil {
			p.Sent += r.BLS.Responses()
		}
	}
	if d.executesLocked(b) {
		p.Where = waitgraph.Executed
	}
	return p
}

// waitingBLS lists the BLS requests that wait.
func (d *Batcher) waitingBLS() []*waitgraph.BLSRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*waitgraph.BLSRequest
	for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
		if r.BLS != nil {
			list = append(list, r.BLS)
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
