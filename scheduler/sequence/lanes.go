package sequence

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler"
)

// Available implements backend.Events.
func (s *Batcher) Available(in backend.Instance) {
	var then followUp
	s.mu.Lock()
	l, ok := s.instances.MeetLocked(in)
	if !ok {
		s.mu.Unlock()
		return
	}
	left := s.busyLocked(l) // requests that came back after Lost
	// Until the lane becomes available below, no request is submitted to its batcher, which is
	// called with nothing locked.
	s.mu.Unlock()
	for _, r := range left {
		s.reclaim(r)
	}
	if l.inner != nil {
		l.inner.Available(in)
	}
	s.mu.Lock()
	s.instances.AvailableLocked(l)
	l.refuses = false
	if !l.RetiringLocked() {
		for _, at := range l.slots {
			if at.seq == nil && !s.free.Has(at) {
				s.free.Push(at)
			}
		}
		s.fillLocked(&then)
	}
	for _, at := range l.slots {
		s.advanceLocked(at, &then)
	}
	s.mu.Unlock()
	then.run(s)
}

func (s *Batcher) newLane() *lane {
	l := &lane{owner: s}
	if s.oldest != nil {
		l.inner = s.newInner()
	}
	return l
}

// fillLocked moves sequences from the backlog to free slots.
func (s *Batcher) fillLocked(then *followUp) {
	for s.backlog.First != nil {
		at := s.takeSlotLocked()
		if at == nil {
			return
		}
		next := s.backlog.First
		s.leaveBacklogLocked(next)
		s.occupyLocked(next, at, then)
	}
}

// Lost implements backend.Events. A process takes the knowledge of its sequences with it, unless
// the states of the model are kept here. Sequences that it had begun have ended: their queued
// requests fail and clients must start again. All others move to another slot.
func (s *Batcher) Lost(in backend.Instance, hopeless bool) {
	var then followUp
	s.mu.Lock()
	l, ok := s.instances.LostLocked(in, hopeless)
	if !ok {
		s.mu.Unlock()
		return
	}
	l.refuses = false
	l.life++
	inner := s.busyLocked(l)
	// Its requests have been answered, or come back because it had not begun them.
	if b := l.executes; b != nil {
		notBegun(b.episodes)
	}
	notBegun(inner)
	l.executes = nil
	l.restLocked()
	s.mu.Unlock()
	for _, r := range inner {
		s.reclaim(r)
	}
	if l.inner != nil {
		l.inner.Lost(in, hopeless)
	}
	s.mu.Lock()
	var homeless []*sequence // bound: the slots
	for i := len(l.slots) - 1; i >= 0; i-- {
		at := l.slots[i]
		seq := at.seq
		if seq == nil {
			continue
		}
		lost := seq.begun && s.states == nil
		at.seq, seq.slot, seq.begun = nil, nil, false
		if lost {
			s.loseLocked(seq, in, &then)
		}
		if seq.First != nil {
			homeless = append(homeless, seq)
		}
	}
	s.returnLocked(homeless, &then)
	s.refuseAllLocked(&then)
	s.drainLocked(l, &then)
	waiting := s.waitingBLSLocked(hopeless)
	s.mu.Unlock()
	then.run(s)
	s.config.Graph.Recheck(waiting)
}

// notBegun records that the process has not begun these requests: they come back, and it knows
// nothing about sequences that begin with one of them.
func notBegun(list []*episode) {
	for _, r := range list {
		if r.state == ended {
			continue
		}
		r.seq.awaits = r
		if r.fresh && r.seq.slot != nil && r.seq.slot.lane == r.at {
			r.seq.begun = false
		}
	}
}

// refuseAllLocked fails the backlog if every instance is hopeless.
func (s *Batcher) refuseAllLocked(then *followUp) {
	lost := s.instances.HopelessLocked()
	for seq := s.backlog.First; seq != nil && lost != nil; seq = s.backlog.First {
		s.failLocked(seq, scheduler.BackendFailure, backend.Unhealthy(lost.Name()), then)
		s.closeLocked(seq, then)
	}
}

// loseLocked ends a sequence whose process has died, up to the next START.
func (s *Batcher) loseLocked(seq *sequence, in backend.Instance, then *followUp) {
	for seq.First != nil && !seq.First.starts() {
		r := seq.pop()
		s.waiting--
		then.pending++
		then.fail(r, scheduler.BackendFailure, backend.Unhealthy(in.Name()))
	}
	if seq.First == nil {
		s.closeLocked(seq, then)
	}
}

// returnLocked puts sequences that have lost their slots at the front of the backlog; the caller
// passes them in reverse order. A sequence without queued requests gets a slot with its next
// request.
func (s *Batcher) returnLocked(homeless []*sequence, then *followUp) {
	for _, seq := range homeless {
		if seq.backlogged || seq.slot != nil || seq.First == nil || seq.awaits != nil {
			continue
		}
		s.unrestLocked(seq)
		seq.backlogged = true
		s.backlog.PushFront(seq)
		for r := seq.First; r != nil; r = r.After {
			s.expireAtLocked(seq, r.expires)
		}
	}
	s.fillLocked(then)
}

// putBackLocked queues a request in front that an instance has not begun, and reports whether its
// sequence needs a slot. If its client has disconnected, the sequence ends.
func (s *Batcher) putBackLocked(r *episode, then *followUp) (homeless bool) {
	seq := r.seq
	if seq.awaits == r {
		seq.awaits = nil
	}
	seq.pushFront(r)
	s.waiting++
	s.config.Observer.Pending(1) // before an instance takes the request
	switch {
	case r.task.Context.Err() != nil: // its cancellation went to the instance
		s.dropLocked(seq, then)
		return false
	case seq.slot != nil:
		seq.begun = seq.begun && !r.fresh
		return false
	case seq.backlogged:
		return false
	case r.fresh || s.states != nil || r.starts():
		return true
	default: // the process that had its beginning is lost
		s.loseLocked(seq, r.at.Instance(), then)
		return seq.First != nil
	}
}

// Retire implements Scheduler. Sequences in slots of the instance keep them until they end.
func (s *Batcher) Retire(in backend.Instance, drained func()) (answered bool) {
	var then followUp
	s.mu.Lock()
	l, known := s.instances.RetireLocked(in, drained)
	if !known {
		s.mu.Unlock()
		drained()
		return true
	}
	answered = l.answeredLocked()
	s.refuseAllLocked(&then)
	s.drainLocked(l, &then)
	waiting := s.waitingBLSLocked(true)
	s.mu.Unlock()
	then.run(s)
	s.config.Graph.Recheck(waiting)
	return answered
}

// answeredLocked reports whether an instance has no sequence and all its requests have had their
// last responses.
func (l *lane) answeredLocked() bool {
	for _, at := range l.slots {
		if at.seq != nil || at.busy != nil && !at.busy.Answered() {
			return false
		}
	}
	return l.executes == nil || !slices.ContainsFunc(l.executes.episodes, func(r *episode) bool { return !r.Answered() })
}

// Forget implements Scheduler.
func (s *Batcher) Forget(in backend.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances.ForgetLocked(in)
}

// drainLocked removes a retiring lane without work. A second call has no effect.
func (s *Batcher) drainLocked(l *lane, then *followUp) {
	if !l.RetiringLocked() || l.executes != nil {
		return
	}
	for _, at := range l.slots {
		if at.seq != nil || at.busy != nil {
			return
		}
	}
	drained := s.instances.DrainLocked(l)
	if drained == nil {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	then.drained = append(then.drained, drained)
}
