package sequence

import (
	"container/heap"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/linked"
	"github.com/nereid-serving/nereid/scheduler/roster"
)

// sequence is what is known of one correlation id from START to the end of its
// last request's wait.
type sequence struct {
	linked.List[*episode]        // what waits of it
	linked.Neighbours[*sequence] // in the idle list, or in the backlog

	id         infer.CorrelationID
	known      bool // requests find it by its id
	backlogged bool
	closing    bool     // its slot becomes free when nothing of it waits
	begun      bool     // its slot's process has had a request of it
	awaits     *episode // comes back from a lost instance: nothing is executed before it
	slot       *slot    // nil: it has none
	moves      uint32   // how often it got one
	values     *stateValues

	touched  int64 // when its last request came
	resting  bool  // in the idle list
	deadline int64 // when its requests fail if it is in the backlog; 0: never
	heapAt   int   // in the heap of deadlines, -1: not there
}

func (q *sequence) pushBack(r *episode) {
	r.seq, r.state = q, waiting
	q.List.PushBack(r)
}

func (q *sequence) pushFront(r *episode) {
	r.seq, r.state = q, waiting
	q.List.PushFront(r)
}

// pop takes the first request, nil if there is none.
func (q *sequence) pop() *episode {
	r := q.First
	if r != nil {
		q.Remove(r)
	}
	return r
}

// lane is an instance of the roster with its slots. Sequences that have a slot of a
// retiring instance keep it until they end; no other sequence gets one.
type lane struct {
	roster.Member
	owner *Batcher
	slots []*slot
	directLane
	inner *scheduler.Batcher // of Oldest, nil with Direct
	life  uint32             // how often the instance was lost
}

// slot is one place for a sequence.
type slot struct {
	lane   *lane
	number int
	seq    *sequence // nil: it is free
	isFree bool      // it is among the free ones of the scheduler
	busy   *episode  // that was taken from it and has not come back (Oldest)
}

// freeSlots are the slots that a sequence can begin in: the lowest number first,
// and of equal ones that of the instance that came first. Those of a lane
// that have never been used are not in it: see Batcher.takeSlotLocked.
type freeSlots []*slot

func (f freeSlots) Len() int { return len(f) }
func (f freeSlots) Less(i, j int) bool {
	return f[i].number < f[j].number || f[i].number == f[j].number && f[i].lane.Order() < f[j].lane.Order()
}
func (f freeSlots) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *freeSlots) Push(x any)   { *f = append(*f, x.(*slot)) }
func (f *freeSlots) Pop() any {
	old := *f
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*f = old[:len(old)-1]
	return last
}

// takeSlotLocked returns the lowest free slot, nil if there is none. Slots are
// made when they are needed first.
func (s *Batcher) takeSlotLocked() *slot {
	for len(s.free) > 0 && !s.free[0].lane.ServesLocked() { // put back when the lane is available again
		heap.Pop(&s.free).(*slot).isFree = false
	}
	var from *lane
	for _, l := range s.instances.MembersLocked() {
		if l.ServesLocked() && len(l.slots) < s.slots && (from == nil || len(l.slots) < len(from.slots)) {
			from = l
		}
	}
	if len(s.free) > 0 {
		best := s.free[0]
		if from == nil || best.number < len(from.slots) || best.number == len(from.slots) && best.lane.Order() < from.Order() {
			heap.Pop(&s.free).(*slot).isFree = false
			return best
		}
	}
	if from == nil {
		return nil
	}
	made := &slot{lane: from, number: len(from.slots)}
	from.slots = append(from.slots, made)
	return made
}

// placeLocked gives a sequence a slot, or a place in the backlog.
func (s *Batcher) placeLocked(seq *sequence, then *followUp) {
	if at := s.takeSlotLocked(); at != nil {
		s.seatLocked(seq, at, then)
		return
	}
	seq.backlogged = true
	s.unrestLocked(seq)
	s.backlog.PushBack(seq)
	for r := seq.First; r != nil; r = r.After {
		s.expireAtLocked(seq, r.expires)
	}
}

// seatLocked gives a slot to a sequence that is not in the backlog.
func (s *Batcher) seatLocked(seq *sequence, at *slot, then *followUp) {
	at.seq, seq.slot = seq, at
	seq.moves++
	s.advanceLocked(at, then)
}

// vacateLocked takes a sequence from its slot, which goes to the next one of the
// backlog.
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
		s.seatLocked(next, at, then)
	case !at.isFree:
		at.isFree = true
		heap.Push(&s.free, at)
	}
}

// leaveBacklogLocked takes a sequence out of the backlog. Its idle time begins
// anew: a sequence in the backlog has not been idle.
func (s *Batcher) leaveBacklogLocked(seq *sequence) {
	s.backlog.Remove(seq)
	seq.backlogged = false
	s.expireAtLocked(seq, 0)
	if seq.known {
		s.touchLocked(seq)
	}
}

// takeLocked takes the first request of a slot's sequence to have it executed.
// The slot goes to another sequence if this was the last one.
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

// nextLocked returns the first request of a slot that is to be executed, nil if
// there is none. A sequence whose next request was cancelled is dropped whole.
func (s *Batcher) nextLocked(at *slot, then *followUp) *episode {
	for at.seq != nil && at.seq.First != nil {
		r := at.seq.First
		if r.task.Context.Err() == nil {
			return r
		}
		s.dropLocked(at.seq, then) // the slot may have another one now
	}
	return nil
}

// dropLocked ends a sequence whose client has gone.
func (s *Batcher) dropLocked(seq *sequence, then *followUp) {
	s.failLocked(seq, scheduler.Canceled, &infer.Error{Code: infer.Cancelled}, then)
	s.closeLocked(seq, then)
}

// failLocked answers all that waits in a sequence with an error.
func (s *Batcher) failLocked(seq *sequence, reason scheduler.Reason, err error, then *followUp) {
	for r := seq.pop(); r != nil; r = seq.pop() {
		s.waiting--
		then.pending++
		then.fail(r, reason, err)
	}
}

// closeLocked ends a sequence, as far as clients know at once, and its slot when
// nothing of it waits.
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

// forgetLocked has the sequence's id begin a new one from now on.
func (s *Batcher) forgetLocked(seq *sequence) {
	if seq.known {
		seq.known = false
		delete(s.ids, seq.id)
		s.unrestLocked(seq)
		s.unchargeLocked(seq.values)
	}
}

// advanceLocked has what waits in a slot executed, if that is possible now.
func (s *Batcher) advanceLocked(at *slot, then *followUp) {
	switch {
	case s.held:
	case s.oldest != nil:
		s.submitLocked(at, then)
	default:
		s.formLocked(at.lane, then)
	}
}

// releaseHoldLocked lets executions begin that the configuration holds back, if
// enough waits.
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

// endHoldLocked lets executions begin.
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
