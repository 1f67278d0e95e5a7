package sequence

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// A BLS request waits for the instance of its slot, or, in the
// backlog, for any. What the batcher of a lane has, the batcher knows.

func (r *episode) Model() string { return r.owner.config.Model }

// Station implements waitgraph.Waiter.
func (r *episode) Station() waitgraph.Station {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.seq == nil || r.seq.slot == nil {
		return s
	}
	return r.seq.slot.lane
}

// Where implements waitgraph.Waiter.
func (r *episode) Where() waitgraph.Place {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	p := waitgraph.Place{Turns: r.moves}
	if r.seq != nil {
		p.Turns += r.seq.moves
	}
	if r.batch != nil {
		p.Batch = r.batch
	}
	if r.BLS != nil {
		p.Sent = r.BLS.Responses()
	}
	switch {
	case r.state == ended || r.state == waiting && r.task.Context.Err() != nil:
		p.Where = waitgraph.Over
	case r.state == waiting && r.seq != nil:
		p.Where = waitgraph.Queued
	case r.batch != nil && r.batch.lane.executes == r.batch:
		p.Where = waitgraph.Executed
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
	s.outLocked()
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
func (b *slotBatch) Where() waitgraph.Place {
	s := b.episodes[0].owner
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.placeLocked()
}

func (b *slotBatch) placeLocked() waitgraph.Place {
	p := waitgraph.Place{Batch: b}
	for _, r := range b.episodes {
		if r.BLS != nil {
			p.Sent += r.BLS.Responses()
		}
	}
	if b.lane.executes == b {
		p.Where = waitgraph.Executed
	}
	return p
}

// Look implements waitgraph.Station: what the sequences of a lane wait for.
func (l *lane) Look() (places []waitgraph.Place, changes uint64, free bool) {
	l.owner.mu.Lock()
	available, hopeless := l.AvailableLocked(), l.HopelessLocked()
	executes, changes := l.executes, l.ChangesLocked()
	if executes != nil {
		places = append(places, executes.placeLocked())
	}
	l.owner.mu.Unlock()
	switch {
	case !available:
		return nil, changes, !hopeless
	case l.inner != nil:
		places, more, free := l.inner.Look()
		return places, changes + more, free
	case executes == nil:
		return nil, changes, true
	}
	return places, changes, false
}

// Look implements waitgraph.Station: what the sequences of the backlog wait for. A
// retiring lane, idle or not, gives none of its slots to them.
func (s *Batcher) Look() (places []waitgraph.Place, changes uint64, free bool) {
	s.mu.Lock()
	lanes, changes, expects := s.instances.MembersLocked(), s.instances.ChangesLocked(), s.instances.ExpectsLocked()
	s.mu.Unlock()
	if expects {
		return nil, changes, true
	}
	// The lanes are looked at one by one. A lane that retires meanwhile is counted in
	// ChangesLocked, and Retire has the graph look again.
	for _, l := range lanes {
		if l.retires() {
			continue
		}
		some, more, yes := l.Look()
		if yes {
			return nil, changes, true
		}
		places = append(places, some...)
		changes += more
	}
	return places, changes, false
}

func (l *lane) retires() bool {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	return l.RetiringLocked()
}

// waitingBLSLocked lists the BLS requests that wait, if they are asked for.
func (s *Batcher) waitingBLSLocked(wanted bool) []*waitgraph.BLSRequest {
	if !wanted {
		return nil
	}
	var list []*waitgraph.BLSRequest
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
