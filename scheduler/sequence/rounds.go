package sequence

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// releasedLocked records that an instance is done with a request, answered or not. again says that
// the model has rescheduled it.
func (s *Batcher) releasedLocked(r *episode, again bool, then *followUp) {
	switch {
	case again:
		s.againLocked(r, then)
	case s.config.Batching.GetIterativeSequence():
		s.closeLocked(r.seq, then)
	}
}

// againLocked appends a rescheduled request to its sequence, or fails it if that is impossible.
func (s *Batcher) againLocked(r *episode, then *followUp) {
	if r.state == ended { // its backend has also answered it
		return
	}
	if b := r.batch; b != nil {
		r.batch = nil
		if b.open > 0 {
			b.open--
		}
	}
	s.config.Graph.Rescheduled(&r.request)
	var refusal *infer.Error
	switch {
	case !s.config.Batching.GetIterativeSequence():
		refusal = scheduler.NotIterative()
	case !r.seq.known:
		refusal = s.needsStart(r.own.Correlation)
	case r.task.Context.Err() != nil:
		then.fail(r, scheduler.Canceled, &infer.Error{Code: infer.Cancelled})
		s.dropLocked(r.seq, then)
		return
	default:
		if lost := s.instances.HopelessLocked(); lost != nil && r.seq.slot == nil {
			then.fail(r, scheduler.BackendFailure, backend.Unhealthy(lost.Name()))
			s.closeLocked(r.seq, then)
			return
		}
		r.own.Flags = 0
		r.timing.Queued = backend.Now()
		s.joinLocked(r, r.seq, then)
		return
	}
	s.config.Log.Error().Msgf("Failed to release request: %s", refusal.Message)
	then.fail(r, scheduler.BackendFailure, refusal)
}
