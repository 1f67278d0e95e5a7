package scheduler

import (
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

// admitSequence checks a request of an iterative model and makes it a sequence
// of its own, if it belongs to none.
func (d *Batcher) admitSequence(req *infer.Request) error {
	switch {
	case req.BatchSize > 1:
		return infer.Errorf(infer.InvalidArg, "inference request to model '%s' must specify batch-size 1 due to requirements of sequence batcher", d.config.Model)
	case req.Correlation.IsZero():
		req.Correlation.Number = d.sequences.Add(1)
		req.Flags = infer.SequenceStart
	case req.Flags&infer.SequenceStart == 0:
		return d.needsStart(req)
	}
	return nil
}

func (d *Batcher) needsStart(req *infer.Request) *infer.Error {
	id := req.Correlation.Text
	if id == "" {
		id = strconv.FormatUint(req.Correlation.Number, 10)
	}
	return infer.Errorf(infer.InvalidArg,
		"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", id, d.config.Model)
}

// reschedule lets a request wait again that its model has released in order to
// get it once more, behind those that wait already. Where that is not possible
// its client gets an error.
func (d *Batcher) reschedule(r *request) {
	req := r.task.Request
	d.config.Graph.release(req)
	refusal, reason := d.refuseRound(req)
	d.mu.Lock()
	drained := d.leaveLocked(r)
	r.instance = nil
	lost := d.hopelessLocked()
	switch {
	case r.ended: // its backend has said both
		d.mu.Unlock()
		d.released(r)
		drained()
		d.dispatch()
		return
	case refusal != nil:
	case r.task.Context.Err() != nil:
		refusal, reason = &infer.Error{Code: infer.Cancelled}, Canceled
	case lost != nil:
		refusal, reason = infer.AsError(unhealthy(lost)), BackendFailure
	default:
		req.Flags = 0
		r.timing[0].Queued = Now()
		d.waiting.pushBack(r)
		d.mu.Unlock()
		drained()
		d.config.Observer.Pending(1)
		d.dispatch()
		return
	}
	d.mu.Unlock()
	d.config.Observer.Failed(reason, r.timing[0].Start)
	d.released(r)
	drained()
	d.dispatch()
	r.deliver(infer.ErrorResponse(refusal))
}

// refuseRound tells why a request gets no other round, nil if it does.
func (d *Batcher) refuseRound(req *infer.Request) (*infer.Error, Reason) {
	var refusal *infer.Error
	switch {
	case !d.config.Iterative:
		refusal = infer.Errorf(infer.Internal,
			"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.")
	case req.Flags&infer.SequenceEnd != 0:
		refusal = d.needsStart(req)
	default:
		return nil, 0
	}
	d.config.Log.Error().Msgf("Failed to release request: %s", refusal.Message)
	return refusal, BackendFailure
}
