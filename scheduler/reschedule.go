package scheduler

import (
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// reschedule ends the execution of a batch of which the model has released some
// requests in order to get them once more. They go to whoever takes them; if
// nobody does, their clients get an error.
func (d *Batcher) reschedule(b *batch) {
	var again []*request
	d.mu.Lock()
	d.begunLocked(b)
	drained := d.leaveLocked(b)
	for _, r := range b.requests {
		if !r.ended && slices.Contains(b.execution.Report.Rescheduled, &r.task) { // else its backend has said both
			r.batch = nil
			again = append(again, r)
		}
	}
	d.mu.Unlock()
	for _, r := range b.requests {
		if !slices.Contains(again, r) {
			d.released(r)
		}
	}
	for _, r := range again {
		d.config.Graph.Rescheduled(r.task.Request)
		if d.config.Again != nil {
			r.Send = func(response *infer.Response) { response.Release() }
			r.deliver(&infer.Response{Final: true}) // to nobody
			d.config.Again(r.task.Request)
		} else {
			d.config.Log.Error().Msgf("Failed to release request: %s", NotIterative().Message)
			d.config.Observer.Failed(BackendFailure, r.timing[0].Start)
			d.released(r)
		}
	}
	drained()
	d.dispatch()
	if d.config.Again == nil {
		for _, r := range again {
			r.deliver(infer.ErrorResponse(NotIterative()))
		}
	}
}

// NotIterative is what becomes of a request that is released for another round
// where none is configured.
func NotIterative() *infer.Error {
	return infer.Errorf(infer.Internal,
		"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.")
}
