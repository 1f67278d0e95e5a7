package scheduler

import "github.com/nereid-serving/nereid/backend"

// A call that a model makes waits for the instance of its slot, or, in the
// backlog, for any. What the batcher of a lane has, the batcher knows.

func (r *episode) Model() string { return r.owner.config.Model }

// Station implements waiter.
func (r *episode) Station() station {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.seq == nil || r.seq.slot == nil {
		return s
	}
	return r.seq.slot.lane
}

// Where implements waiter.
func (r *episode) Where() place {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	p := place{turns: r.moves}
	if r.seq != nil {
		p.turns += r.seq.moves
	}
	if r.batch != nil {
		p.batch = r.batch
	}
	if r.call != nil {
		p.sent = r.call.Responses()
	}
	switch {
	case r.state == ended || r.state == waiting && r.task.Context.Err() != nil:
		p.where = over
	case r.state == waiting && r.seq != nil:
		p.where = queued
	case r.batch != nil && r.batch.lane.executes == r.batch:
		p.where = executed
	}
	return p
}

// TakeBack implements waiter.
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

// Out implements waiter.
func (r *episode) Out() {
	s := r.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outLocked()
}

// Refuse implements waiter.
func (r *episode) Refuse(err error) {
	var then followUp
	then.fail(r, Rejected, err)
	then.run(r.owner)
}

func (b *slotBatch) Model() string            { return b.episodes[0].owner.config.Model }
func (b *slotBatch) Members() []*backend.Task { return b.batch.Tasks }

// Where implements running.
func (b *slotBatch) Where() place {
	s := b.episodes[0].owner
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.placeLocked()
}

func (b *slotBatch) placeLocked() place {
	p := place{batch: b}
	for _, r := range b.episodes {
		if r.call != nil {
			p.sent += r.call.Responses()
		}
	}
	if b.lane.executes == b {
		p.where = executed
	}
	return p
}

// Look implements station: what the sequences of a lane wait for.
func (l *lane) Look() (places []place, changes uint64, free bool) {
	l.owner.mu.Lock()
	up, hopeless := l.up, l.hopeless
	executes, changes := l.executes, l.changes
	if executes != nil {
		places = append(places, executes.placeLocked())
	}
	l.owner.mu.Unlock()
	switch {
	case !up:
		return nil, changes, !hopeless
	case l.inner != nil:
		places, more, free := l.inner.Look()
		return places, changes + more, free
	case executes == nil:
		return nil, changes, true
	}
	return places, changes, false
}

// Look implements station: what the sequences of the backlog wait for.
func (s *Sequence) Look() (places []place, changes uint64, free bool) {
	s.mu.Lock()
	lanes := s.instances[:len(s.instances):len(s.instances)]
	s.mu.Unlock()
	for _, l := range lanes {
		some, n, yes := l.Look()
		if yes {
			return nil, changes, true
		}
		places = append(places, some...)
		changes += n
	}
	return places, changes, len(lanes) == 0
}

// waitingCallsLocked lists the requests of models that wait, if they are asked
// for.
func (s *Sequence) waitingCallsLocked(wanted bool) []*call {
	if !wanted {
		return nil
	}
	var list []*call
	add := func(seq *sequence) {
		for r := seq.First; r != nil; r = r.After {
			if r.call != nil {
				list = append(list, r.call)
			}
		}
	}
	for _, l := range s.instances {
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
