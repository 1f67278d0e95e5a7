package scheduler

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// batch is a set of requests that an instance executes together.
type batch struct {
	backend.Batch
	requests  []*request // at least one
	execution Execution

	// Guarded by the scheduler's mu.
	on      *member // the member it was given to last; nil before that
	pending bool    // given ahead and not begun: its requests still count as pending
}

// alone is the batch of one that each request contains.
type alone struct {
	batch
	tasks    [1]*backend.Task
	requests [1]*request
}

func (a *alone) make(r *request) {
	a.tasks[0], a.requests[0] = &r.task, r
	a.batch.requests = a.requests[:]
	a.Batch = backend.Batch{Tasks: a.tasks[:], Done: a.batch.executed}
}

// newBatch returns a batch of requests. The caller may reuse the slice.
func newBatch(requests []*request) *batch {
	if len(requests) == 1 {
		return &requests[0].alone.batch
	}
	b := &batch{requests: slices.Clone(requests)}                                          // bound: the batch
	b.Batch = backend.Batch{Tasks: make([]*backend.Task, len(requests)), Done: b.executed} // bound: the batch
	for i, r := range requests {
		b.Tasks[i] = &r.task
	}
	return b
}

func (b *batch) scheduler() *Batcher { return b.requests[0].scheduler }

// timings returns the timings of the batch's requests.
func (b *batch) timings() []Timing {
	if len(b.requests) == 1 {
		return b.requests[0].timing[:]
	}
	list := make([]Timing, len(b.requests)) // bound: the batch
	for i, r := range b.requests {
		list[i] = r.timing[0]
	}
	return list
}

// answered reports whether all requests of the batch have had their last responses. A nil batch has
// none.
func (b *batch) answered() bool {
	return b == nil || !slices.ContainsFunc(b.requests, func(r *request) bool { return !r.Answered() })
}

// hasBLS reports whether the batch contains a BLS request.
func (b *batch) hasBLS() bool {
	return slices.ContainsFunc(b.requests, func(r *request) bool { return r.task.Request.Caller != nil })
}

// executed is the Done of the batch: it counts the execution and gives the instance its next batch.
func (b *batch) executed(_ *backend.Batch, report backend.Report) {
	d := b.scheduler()
	handover.Returned(&b.Batch, &report)
	if report.Refused {
		d.again(b, report.Withdrawn)
		return
	}
	b.execution = Execution{Requests: b.timings(), Report: report}
	d.config.Observer.Executed(&b.execution)
	for _, r := range b.requests {
		Account(r.task.Request, &report)
	}
	if len(report.Rescheduled) > 0 {
		d.reschedule(b)
		return
	}
	d.mu.Lock()
	d.begunLocked(b)
	drained := d.leaveLocked(b)
	idle := d.waiting.length == 0 && d.aheads == 0 // later requests see the idle instance
	d.mu.Unlock()
	if d.config.Released != nil {
		for _, r := range b.requests {
			d.released(r)
		}
	}
	drained()
	if !idle {
		d.dispatch()
	}
}

// again puts the requests of a batch that an instance has refused or returned back at the front of
// the queue. It ends requests whose clients have disconnected, which cancel leaves to it if they
// are in no line.
func (d *Batcher) again(b *batch, withdrawn bool) {
	d.mu.Lock()
	drained := nothing
	if withdrawn {
		drained = d.leaveLocked(b)
	}
	lost := d.instances.HopelessLocked()
	var gone []*request
	back := 0
	if !b.pending {
		back = len(b.requests)
	}
	b.pending = false
	for i := len(b.requests) - 1; i >= 0; i-- {
		r := b.requests[i]
		r.batch = nil
		if r.task.Context.Err() != nil || lost != nil {
			gone = append(gone, r) // bound: the batch
			continue
		}
		d.putBackLocked(r)
	}
	if change := back - len(gone); change != 0 {
		d.config.Observer.Pending(change) // before an instance takes them
	}
	d.mu.Unlock()
	drained()
	for i := len(gone) - 1; i >= 0; i-- {
		if r := gone[i]; r.task.Context.Err() != nil {
			d.fail(r, Canceled, canceled())
		} else {
			d.fail(r, BackendFailure, backend.Unhealthy(lost.Name()))
		}
	}
	d.dispatch()
}

// reschedule ends the execution of a batch and passes the requests that the model has rescheduled
// to Config.Again. Without Again their clients get an error.
func (d *Batcher) reschedule(b *batch) {
	var again []*request
	d.mu.Lock()
	d.begunLocked(b)
	drained := d.leaveLocked(b)
	for _, r := range b.requests {
		if !r.ended && slices.Contains(b.execution.Report.Rescheduled, &r.task) { // a backend may have answered it too
			r.batch = nil
			again = append(again, r) // bound: the batch
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
			r.deliver(&infer.Response{Final: true}) // to no client
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

// NotIterative returns the error for a rescheduled request of a model without iterative sequences.
func NotIterative() *infer.Error {
	return infer.Errorf(infer.Internal,
		"Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.")
}
