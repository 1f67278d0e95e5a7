package sequence

import (
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
)

// touchLocked restarts the idle time of a sequence.
func (s *Batcher) touchLocked(seq *sequence) {
	seq.touched = backend.Now()
	if seq.backlogged { // not idle
		return
	}
	s.unrestLocked(seq)
	seq.resting = true
	s.resting.PushBack(seq)
	s.setAlarmLocked(seq.touched)
}

// patienceLocked returns how long a sequence may be idle. When no request can follow, an idle
// sequence leaves its slot to the backlog.
func (s *Batcher) patienceLocked() int64 {
	if s.census.StoppedLocked() && s.backlog.First != nil {
		return 0
	}
	return s.idle
}

func (s *Batcher) unrestLocked(seq *sequence) {
	if seq.resting {
		s.resting.Remove(seq)
		seq.resting = false
	}
}

// expireAtLocked sets the deadline of a sequence in the backlog to the earliest of its requests; 0
// means none. It removes the deadline of a sequence outside the backlog.
func (s *Batcher) expireAtLocked(seq *sequence, at int64) {
	switch {
	case !seq.backlogged:
		seq.deadline = 0
		if s.expiring.Has(seq) {
			s.expiring.Remove(seq)
		}
	case at == 0 || seq.deadline != 0 && seq.deadline <= at:
	case s.expiring.Has(seq):
		seq.deadline = at
		s.expiring.Fix(seq)
	default:
		seq.deadline = at
		s.expiring.Push(seq)
	}
	if s.expiring.Len() > 0 {
		s.setAlarmLocked(backend.Now())
	}
}

// setAlarmLocked sets the timer for the next deadline or the end of an idle time. An early alarm
// does no harm, so the timer only moves forward.
func (s *Batcher) setAlarmLocked(now int64) {
	next := int64(0)
	if s.resting.First != nil {
		next = s.resting.First.touched + s.patienceLocked()
	}
	if first := s.expiring.First(); first != nil && (next == 0 || first.deadline < next) {
		next = first.deadline
	}
	if next == 0 || s.rings != 0 && s.rings <= next || s.census.StoppedLocked() && s.census.InFlightLocked() == 0 {
		return
	}
	s.rings = next
	wait := time.Duration(max(next-now, 0))
	if s.alarm == nil {
		s.alarm = panics.AfterFunc(s.config.Log, panics.Scheduler, wait, s.ring, nil)
	} else {
		s.alarm.Reset(wait)
	}
}

// ring ends expired sequences.
func (s *Batcher) ring() {
	var then followUp
	s.mu.Lock()
	now := backend.Now()
	for seq := s.expiring.First(); seq != nil && seq.deadline <= now; seq = s.expiring.First() {
		s.failLocked(seq, scheduler.Rejected, infer.Errorf(infer.Unavailable, "timeout of the corresponding sequence has been expired"), &then)
		s.closeLocked(seq, &then)
	}
	for s.resting.First != nil && now-s.resting.First.touched >= s.patienceLocked() {
		s.closeLocked(s.resting.First, &then)
	}
	s.rings = 0
	s.setAlarmLocked(now)
	s.mu.Unlock()
	then.run(s)
}
