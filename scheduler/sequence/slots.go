package sequence

import (
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/roster"
)

// sequence is the state of one correlation id, from START until its last queued request is taken.
type sequence struct {
	scheduler.List[*episode]        // its queued requests
	scheduler.Neighbours[*sequence] // in resting, or in the backlog

	id         infer.CorrelationID
	known      bool // found by its id
	backlogged bool
	closing    bool     // it leaves its slot when no request is queued
	begun      bool     // its slot's process has had one of its requests
	awaits     *episode // comes back from a lost instance, and is executed first
	slot       *slot    // nil without one
	moves      uint32   // number of slots so far
	values     *stateValues
	open       int   // requests that have not ended
	charged    int64 // without values

	touched  int64 // when its last request arrived
	resting  bool  // in Batcher.resting
	deadline int64 // in the backlog; 0: none
	index    int   // in Batcher.expiring
}

func (q *sequence) pushBack(r *episode) {
	r.seq, r.state = q, waiting
	q.List.PushBack(r)
}

func (q *sequence) pushFront(r *episode) {
	r.seq, r.state = q, waiting
	q.List.PushFront(r)
}

// pop removes and returns the first request, or returns nil.
func (q *sequence) pop() *episode {
	r := q.First
	if r != nil {
		q.Remove(r)
	}
	return r
}

// lane is an instance with its slots.
type lane struct {
	roster.Member
	owner *Batcher
	slots []*slot // bound: one for each sequence at one time, which are charged
	directLane
	inner *scheduler.Batcher // nil with Direct
	life  uint32             // number of losses
}

// slot serves one sequence at a time.
type slot struct {
	lane   *lane
	number int
	seq    *sequence // nil if free
	index  int       // in Batcher.free
	busy   *episode  // taken from it and not returned (Oldest)
}

// before orders free slots by number, then by the age of their instances.
func (at *slot) before(other *slot) bool {
	return at.number < other.number || at.number == other.number && at.lane.Order() < other.lane.Order()
}

// takeSlotLocked returns the lowest free slot, or nil. A slot is created at its first use.
func (s *Batcher) takeSlotLocked() *slot {
	best := s.free.First()
	for ; best != nil && !best.lane.ServesLocked(); best = s.free.First() { // Available adds it again
		s.free.Remove(best)
	}
	var from *lane
	for _, l := range s.instances.MembersLocked() {
		if l.ServesLocked() && len(l.slots) < s.slots && (from == nil || len(l.slots) < len(from.slots)) {
			from = l
		}
	}
	if best != nil && (from == nil || best.number < len(from.slots) || best.number == len(from.slots) && best.lane.Order() < from.Order()) {
		s.free.Remove(best)
		return best
	}
	if from == nil {
		return nil
	}
	made := &slot{lane: from, number: len(from.slots)}
	from.slots = append(from.slots, made)
	return made
}

func (s *Batcher) assignSlotLocked(seq *sequence, then *followUp) {
	if at := s.takeSlotLocked(); at != nil {
		s.occupyLocked(seq, at, then)
		return
	}
	seq.backlogged = true
	s.unrestLocked(seq)
	s.backlog.PushBack(seq)
	for r := seq.First; r != nil; r = r.After {
		s.expireAtLocked(seq, r.expires)
	}
}

// occupyLocked gives a slot to a sequence that is not in the backlog.
func (s *Batcher) occupyLocked(seq *sequence, at *slot, then *followUp) {
	at.seq, seq.slot = seq, at
	seq.moves++
	s.advanceLocked(at, then)
}

// vacateLocked removes a sequence from its slot, which goes to the next one in the backlog.
func (s *Batcher) vacateLocked(seq *sequence, then *followUp) {
	at := seq.slot
	seq.slot, at.seq, seq.begun = nil, nil, false
	switch {
	case at.lane.RetiringLocked():
		s.drainLocked(at.lane, then)
	case !at.lane.AvailableLocked():
	case s.backlog.First != nil:
		next := s.backlog.First
		s.leaveBacklogLocked(next)
		s.occupyLocked(next, at, then)
	case !s.free.Has(at):
		s.free.Push(at)
	}
}

// leaveBacklogLocked removes a sequence from the backlog. Its idle time restarts.
func (s *Batcher) leaveBacklogLocked(seq *sequence) {
	s.backlog.Remove(seq)
	seq.backlogged = false
	s.expireAtLocked(seq, 0)
	if seq.known {
		s.touchLocked(seq)
	}
}

// takeLocked takes the first request of a slot's sequence for execution. If it is the last one, the
// slot goes to another sequence.
func (s *Batcher) takeLocked(at *slot, then *followUp) *episode {
	seq := at.seq
	r := seq.pop()
	s.waiting--
	then.pending++
	r.state, r.at = executing, at.lane
	r.moves++
	r.fresh = !seq.begun
	seq.begun = true
	s.injectLocked(r, seq)
	if r.own.Flags&infer.SequenceEnd != 0 || seq.closing && seq.First == nil {
		s.vacateLocked(seq, then)
	}
	return r
}

// nextLocked returns the next request of a slot, or nil. A sequence whose next request is cancelled
// is dropped.
func (s *Batcher) nextLocked(at *slot, then *followUp) *episode {
	for at.seq != nil && at.seq.First != nil {
		r := at.seq.First
		if r.task.Context.Err() == nil {
			return r
		}
		s.dropLocked(at.seq, then) // the slot may have another sequence now
	}
	return nil
}

// dropLocked ends a sequence whose client has disconnected.
func (s *Batcher) dropLocked(seq *sequence, then *followUp) {
	s.failLocked(seq, scheduler.Canceled, &infer.Error{Code: infer.Cancelled}, then)
	s.closeLocked(seq, then)
}

// failLocked fails all queued requests of a sequence.
func (s *Batcher) failLocked(seq *sequence, reason scheduler.Reason, err error, then *followUp) {
	for r := seq.pop(); r != nil; r = seq.pop() {
		s.waiting--
		then.pending++
		then.fail(r, reason, err)
	}
}

// closeLocked ends a sequence. Clients can reuse its id at once; its slot becomes free when no
// request is queued.
func (s *Batcher) closeLocked(seq *sequence, then *followUp) {
	s.forgetLocked(seq)
	seq.closing = true
	switch {
	case seq.First != nil:
	case seq.backlogged:
		s.leaveBacklogLocked(seq)
	case seq.slot != nil:
		s.vacateLocked(seq, then)
	}
}

// forgetLocked detaches a sequence from its id: the next request with the id begins a new one.
func (s *Batcher) forgetLocked(seq *sequence) {
	if seq.known {
		seq.known = false
		delete(s.ids, seq.id)
		s.unrestLocked(seq)
		s.refundLocked(seq)
	}
}

// refundLocked refunds a sequence that has ended, with its states, unless it has requests.
func (s *Batcher) refundLocked(seq *sequence) {
	if seq.open > 0 {
		return
	}
	s.dropValuesLocked(seq.values)
	if seq.charged > 0 {
		s.config.Memory.Give(budget.States, seq.charged)
		seq.charged = 0
	}
}

// advanceLocked executes the queued requests of a slot, if possible.
func (s *Batcher) advanceLocked(at *slot, then *followUp) {
	switch {
	case s.held:
	case s.oldest != nil:
		s.submitLocked(at, then)
	default:
		s.formLocked(at.lane, then)
	}
}

// releaseHoldLocked ends the hold of Config.HoldRequests and HoldBacklog when enough requests wait.
func (s *Batcher) releaseHoldLocked(then *followUp) {
	if !s.held {
		return
	}
	backlogged := 0
	for seq := s.backlog.First; seq != nil; seq = seq.After {
		for r := seq.First; r != nil; r = r.After {
			backlogged++
		}
	}
	if s.oldest == nil && s.waiting-backlogged < s.config.HoldRequests || backlogged < s.config.HoldBacklog {
		return
	}
	s.endHoldLocked(then)
}

// endHoldLocked ends the hold.
func (s *Batcher) endHoldLocked(then *followUp) {
	if !s.held {
		return
	}
	s.held = false
	for _, l := range s.instances.MembersLocked() {
		for _, at := range l.slots {
			s.advanceLocked(at, then)
		}
	}
}
