package sequence

import (
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// newInner returns the batcher of a lane. It has one request of each slot at a time. The next
// follows when the first has been released and, if its response carries states, answered.
func (s *Batcher) newInner() *scheduler.Batcher {
	b := &batching.Rules{
		MaxSize: int64(s.config.MaxBatch), Alike: s.config.Alike, PreserveOrder: s.oldest.GetPreserveOrdering(),
		MaxDelay:  batching.Micros(s.oldest.GetMaxQueueDelayMicroseconds()),
		StartWith: s.config.HoldRequests,
	}
	for _, size := range s.oldest.GetPreferredBatchSize() {
		b.Preferred = append(b.Preferred, int64(size)) // bound: the config
	}
	slices.Sort(b.Preferred)
	return scheduler.NewBatcher(scheduler.BatcherConfig{
		Model: s.config.Model, Observer: s.config.Observer, Graph: s.config.Graph, Batching: b, Log: s.config.Log,
		Released: func(req *infer.Request) { s.returned(req, false) },
		Again:    func(req *infer.Request) { s.returned(req, true) },
	})
}

// submitLocked submits the next request of a slot to the lane's batcher, unless that has one
// already.
func (s *Batcher) submitLocked(at *slot, then *followUp) {
	if at.busy != nil || !at.lane.AvailableLocked() {
		return
	}
	r := s.nextLocked(at, then)
	if r == nil || at.busy != nil {
		return
	}
	at.busy, r.slot, r.life, r.returned = r, at, at.lane.life, false
	s.joined[&r.request] = r
	s.takeLocked(at, then)
	then.joins = append(then.joins, r)
}

// join submits a request to the batcher of its lane.
func (s *Batcher) join(r *episode) {
	if r.BLS != nil { // the batcher enters it again
		s.config.Graph.Leave(r.BLS)
	}
	inner := r.at.inner.Prepare(r.task.Context, &r.request, r.deliver, r.timing)
	s.mu.Lock()
	r.inner = inner
	s.mu.Unlock()
	if err := inner.Enter(); err != nil {
		var then followUp
		s.mu.Lock()
		if r.fresh && r.seq.First == nil { // the sequence has no other request
			s.closeLocked(r.seq, &then)
		}
		s.mu.Unlock()
		then.fail(r, scheduler.BackendFailure, err)
		s.returned(&r.request, false)
		then.run(s)
		return
	}
	s.mu.Lock()
	lost := r.life != r.at.life
	s.mu.Unlock()
	if lost { // lost while the request was on its way
		s.reclaim(r)
	}
}

// returned records that the batcher of a lane is done with a request. again says that the model has
// rescheduled it.
func (s *Batcher) returned(req *infer.Request, again bool) {
	var then followUp
	s.mu.Lock()
	r := s.joined[req]
	if r == nil { // taken back
		s.mu.Unlock()
		return
	}
	delete(s.joined, req)
	r.returned = true
	at := r.slot
	if again {
		at.busy, r.slot, r.inner = nil, nil, nil
	}
	s.releasedLocked(r, again, &then)
	if again {
		s.advanceLocked(at, &then)
		s.drainLocked(at.lane, &then)
	} else {
		s.slotGoesOnLocked(r, &then)
	}
	s.mu.Unlock()
	then.run(s)
}

// slotGoesOnLocked submits the next request of a slot when the previous one has returned and its
// states have arrived.
func (s *Batcher) slotGoesOnLocked(r *episode, then *followUp) {
	at := r.slot
	if at == nil || !r.returned || s.states != nil && !s.config.Decoupled && r.state != ended {
		return
	}
	at.busy, r.slot = nil, nil
	s.advanceLocked(at, then)
	s.drainLocked(at.lane, then)
}

// busyLocked returns the requests in the batcher of a lane.
func (s *Batcher) busyLocked(l *lane) []*episode {
	var list []*episode // bound: the slots
	for _, at := range l.slots {
		if at.busy != nil {
			list = append(list, at.busy)
		}
	}
	return list
}

// reclaim takes a queued request back from the batcher of a lane that has lost its instance. It
// waits for another slot, or fails if the lost process had begun its sequence.
func (s *Batcher) reclaim(r *episode) {
	s.mu.Lock()
	inner := r.inner
	s.mu.Unlock()
	if inner == nil || !inner.TakeBack() {
		return
	}
	var then followUp
	s.mu.Lock()
	delete(s.joined, &r.request)
	at := r.slot
	at.busy, r.slot, r.inner = nil, nil, nil
	if r.BLS != nil {
		s.config.Graph.Enter(r, r.own.Caller, &r.BLS)
	}
	switch seq := r.seq; {
	case s.putBackLocked(r, &then):
		s.returnLocked([]*sequence{seq}, &then)
	case seq.slot != nil: // a new slot, or Lost is about to take the old one
		s.advanceLocked(seq.slot, &then)
	}
	s.mu.Unlock()
	inner.Discard()
	then.run(s)
}
