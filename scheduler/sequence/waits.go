package sequence

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// A BLS request waits for the instance of its slot or, in the backlog, for any instance. For
// requests in the batcher of a lane, that batcher implements the interfaces of waitgraph.

func (r *episode) Model() string { return r.owner.config.Model }

// InstanceSet implements waitgraph.Waiter.
func (r *episode) Instances() waitgraph.InstanceSet {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.seq == nil || r.seq.slot == nil {
		return s
	}
	return r.seq.slot.lane
}

// Where implements waitgraph.Waiter.
func (r *episode) Position() waitgraph.Position {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	p := waitgraph.Position{Executions: r.moves}
	if r.seq != nil {
		p.Executions += r.seq.moves
	}
	if r.batch != nil {
		p.Batch = r.batch
	}
	if r.BLS != nil {
		p.Responses = r.BLS.Responses()
	}
	switch {
	case r.state == ended || r.state == waiting && r.task.Context.Err() != nil:
		p.State = waitgraph.Ended
	case r.state == waiting && r.seq != nil:
		p.State = waitgraph.Queued
	case r.batch != nil && r.batch.lane.executes == r.batch:
		p.State = waitgraph.Executing
	}
	return p
}

// TakeBack implements waitgraph.Waiter.
func (r *episode) TakeBack() bool {
	s := r.owner
	var then followUp
	s.mu.Lock()
	was := r.state == waiting && r.seq != nil
	if was {
		r.seq.Remove(r)
		r.state = ended
		s.waiting--
		then.pending++
		if r.seq.First == nil && (r.seq.closing || !r.seq.known || r.seq.backlogged || !r.seq.begun) {
			s.closeLocked(r.seq, &then)
		}
	}
	s.mu.Unlock()
	then.run(s)
	return was
}

// Out implements waitgraph.Waiter.
func (r *episode) Out() {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outLocked(r)
}

// Refuse implements waitgraph.Waiter.
func (r *episode) Refuse(err error) {
	var then followUp
	then.fail(r, scheduler.Rejected, err)
	then.run(r.owner)
}

func (b *slotBatch) Model() string            { return b.episodes[0].owner.config.Model }
func (b *slotBatch) Members() []*backend.Task { return b.batch.Tasks }

// Where implements waitgraph.Batch.
func (b *slotBatch) Position() waitgraph.Position {
	s := b.episodes[0].owner
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.positionLocked()
}

func (b *slotBatch) positionLocked() waitgraph.Position {
	p := waitgraph.Position{Batch: b}
	for _, r := range b.episodes {
		if r.BLS != nil {
			p.Responses += r.BLS.Responses()
		}
	}
	if b.lane.executes == b {
		p.State = waitgraph.Executing
	}
	return p
}

// Look implements waitgraph.InstanceSet for the sequences of a lane.
func (l *lane) Look() (positions []waitgraph.Position, changes uint64, free bool) {
	l.owner.mu.Lock()
	available, hopeless := l.AvailableLocked(), l.HopelessLocked()
	executes, changes := l.executes, l.ChangesLocked()
	if executes != nil {
		positions = append(positions, executes.positionLocked())
	}
	l.owner.mu.Unlock()
	switch {
	case !available:
		return nil, changes, !hopeless
	case l.inner != nil:
		positions, more, free := l.inner.Look()
		return positions, changes + more, free
	case executes == nil:
		return nil, changes, true
	}
	return positions, changes, false
}

// Look implements waitgraph.InstanceSet for the backlog. A retiring lane gives it no slots.
//
// bound: the instances
func (s *Batcher) Look() (positions []waitgraph.Position, changes uint64, free bool) {
	s.mu.Lock()
	lanes, changes, expects := s.instances.MembersLocked(), s.instances.ChangesLocked(), s.instances.ExpectsLocked()
	s.mu.Unlock()
	if expects {
		return nil, changes, true
	}
	// The lanes are examined one after another. A lane that retires meanwhile changes
	// ChangesLocked, and Retire repeats the search.
	for _, l := range lanes {
		if l.retires() {
			continue
		}
		some, more, yes := l.Look()
		if yes {
			return nil, changes, true
		}
		positions = append(positions, some...)
		changes += more
	}
	return positions, changes, false
}

func (l *lane) retires() bool {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	return l.RetiringLocked()
}

// waitingBLSLocked returns the queued BLS requests, if wanted.
func (s *Batcher) waitingBLSLocked(wanted bool) []*waitgraph.BLSRequest {
	if !wanted {
		return nil
	}
	var list []*waitgraph.BLSRequest // bound: the queued requests
	add := func(seq *sequence) {
		for r := seq.First; r != nil; r = r.After {
			if r.BLS != nil {
				list = append(list, r.BLS)
			}
		}
	}
	for _, l := range s.instances.MembersLocked() {
		for _, at := range l.slots {
			if at.seq != nil {
				add(at.seq)
			}
		}
	}
	for seq := s.backlog.First; seq != nil; seq = seq.After {
		add(seq)
	}
	return list
}
