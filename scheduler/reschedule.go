package scheduler

import (
	"strconv"

	"github.com/nereid-serving/nereid/backend"
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

// reschedule lets those requests of a batch wait again that its model has
// released in order to get them once more, behind those that wait already. Where
// that is not possible the client gets an error.
func (d *Batcher) reschedule(b *batch) {
	again := make(map[*backend.Task]bool)
	for _, task := range b.execution.Report.Rescheduled {
		again[task] = true
	}
	type refusal struct {
		*infer.Error
		reason Reason
	}
	refusals := make([]refusal, len(b.requests))
	for i, r := range b.requests {
		if again[&r.task] {
			d.config.Graph.release(r.task.Request)
			if d.config.Again != nil {
				continue
			}
			refusals[i].Error, refusals[i].reason = d.refuseRound(r.task.Request)
		}
	}
	waiting := 0
	back := make([]bool, len(b.requests))
	leaves := make([]bool, len(b.requests))
	d.mu.Lock()
	drained := d.leaveLocked(b)
	lost := d.hopelessLocked()
	for i, r := range b.requests {
		refused := &refusals[i]
		switch {
		case !again[&r.task]:
			continue
		case r.ended: // its backend has said both
			refused.Error = nil
			continue
		case d.config.Again != nil:
			leaves[i] = true
			continue
		}
		r.batch = nil
		switch {
		case refused.Error != nil:
		case r.task.Context.Err() != nil:
			*refused = refusal{infer.AsError(canceled()), Canceled}
		case lost != nil:
			*refused = refusal{infer.AsError(unhealthy(lost)), BackendFailure}
		default:
			r.task.Request.Flags = 0
			r.timing[0].Queued = Now()
			back[i] = true
			waiting++
			d.lineUpLocked(r)
		}
	}
	d.mu.Unlock()
	if waiting > 0 {
		d.config.Observer.Pending(waiting)
	}
	for i, r := range b.requests {
		switch refused := refusals[i]; {
		case back[i]:
		case leaves[i]:
			r.send = func(response *infer.Response) { response.Release() }
			r.deliver(&infer.Response{Final: true})
			d.config.Again(r.task.Request)
		case refused.Error == nil:
			d.released(r)
		default:
			d.config.Observer.Failed(refused.reason, r.timing[0].Start)
			d.released(r)
		}
	}
	drained()
	d.dispatch()
	for i, r := range b.requests {
		if refusals[i].Error != nil {
			r.deliver(infer.ErrorResponse(refusals[i].Error))
		}
	}
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
