package scheduler

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// Look implements waitgraph.InstanceSet.
func (d *Batcher) Look() (positions []waitgraph.Position, changes uint64, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes = d.instances.ChangesLocked()
	if len(d.idle) > 0 || d.instances.ExpectsLocked() {
		return nil, changes, true
	}
	for _, has := range d.instances.MembersLocked() {
		if has.ServesLocked() {
			positions = append(positions, d.positionLocked(has.executes)) // bound: the instances
		}
	}
	return positions, changes, false
}

func (d *Batcher) locate(r *request) waitgraph.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := waitgraph.Position{Executions: r.turns}
	if r.batch != nil {
		p.Batch = r.batch
	}
	if r.BLS != nil {
		p.Responses = r.BLS.Responses()
	}
	switch {
	case r.ended || r.queued && r.task.Context.Err() != nil:
		p.State = waitgraph.Ended
	case r.queued:
		p.State = waitgraph.Queued
	case d.executesLocked(r.batch):
		p.State = waitgraph.Executing
	}
	return p
}

func (d *Batcher) executesLocked(b *batch) bool {
	return b != nil && b.on != nil && b.on.executes == b
}

// The methods of waitgraph.Waiter.
func (r *request) Model() string                    { return r.scheduler.config.Model }
func (r *request) Instances() waitgraph.InstanceSet { return r.scheduler }
func (r *request) Position() waitgraph.Position     { return r.scheduler.locate(r) }
func (r *request) TakeBack() bool                   { return r.scheduler.takeBack(r) }
func (r *request) Out()                             { r.scheduler.out() }
func (r *request) Refuse(err error)                 { r.scheduler.fail(r, Rejected, err) }

// The methods of waitgraph.Batch.
func (b *batch) Model() string                { return b.scheduler().config.Model }
func (b *batch) Position() waitgraph.Position { return b.scheduler().positionOf(b) }
func (b *batch) Members() []*backend.Task     { return b.Tasks }

// place returns the position of a batch.
func (d *Batcher) positionOf(b *batch) waitgraph.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.positionLocked(b)
}

func (d *Batcher) positionLocked(b *batch) waitgraph.Position {
	p := waitgraph.Position{Batch: b}
	for _, r := range b.requests {
		p.Executions += r.turns
		if r.BLS != nil {
			p.Responses += r.BLS.Responses()
		}
	}
	if d.executesLocked(b) {
		p.State = waitgraph.Executing
	}
	return p
}

// waitingBLS returns the queued BLS requests.
func (d *Batcher) waitingBLS() []*waitgraph.BLSRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*waitgraph.BLSRequest
	for r := d.waiting.following(nil); r != nil; r = d.waiting.following(r) {
		if r.BLS != nil {
			list = append(list, r.BLS) // bound: requests, which are charged
		}
	}
	return list
}

// takeBack removes a request from its line, and reports whether it was queued.
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

// out counts an accepted request that is rejected after all.
func (d *Batcher) out() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outLocked()
}
