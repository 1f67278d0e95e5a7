package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// request is one request, with the batch of one that it forms if it is executed by itself.
type request struct {
	scheduler *Batcher
	task      backend.Task
	timing    [1]Timing
	handover.Delivery
	turn *turn // its place in the order of responses; nil without an order

	// Guarded by the scheduler's mu.
	Neighbours[*request] // in its line

	ended    bool
	queued   bool
	picked   bool   // for the batch that is being formed
	turns    uint32 // executions begun
	line     int    // index into lines.queues
	alarm    int    // place in lines.deadlines
	deadline int64  // 0: none
	batch    *batch // its current or last batch; nil before the first
	alone    alone
}

func (d *Batcher) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *request {
	r := &request{scheduler: d, Delivery: handover.Delivery{Send: send, Log: &d.config.Log}}
	r.task = backend.Task{Context: ctx, Request: req, Send: r.deliver}
	r.alone.make(r)
	t := backend.Now()
	r.timing[0] = Timing{BatchSize: req.BatchSize, Start: t, Queued: t}
	req.Queued(t)
	return r
}

// deliver sends a response in its turn.
func (r *request) deliver(response *infer.Response) {
	if r.turn != nil {
		r.scheduler.order.deliver(r.turn, response)
		return
	}
	r.pass(response)
}

// pass sends a response and notices the last one.
func (r *request) pass(response *infer.Response) {
	if r.Respond(r.scheduler.config.Graph, response) {
		r.scheduler.end(r)
	}
}

// end removes a request whose last response has been sent.
func (d *Batcher) end(r *request) {
	d.mu.Lock()
	r.ended = true
	d.outLocked()
	d.mu.Unlock()
	r.Finish()
}

// outLocked counts a request that is no longer in flight.
func (d *Batcher) outLocked() {
	if d.census.LeaveLocked() && d.timer != nil {
		d.timer.Stop()
	}
}

// fail answers a request that is in no line and that no instance has.
func (d *Batcher) fail(r *request, reason Reason, err error) {
	d.config.Observer.Failed(reason, r.timing[0].Start)
	d.released(r)
	r.deliver(infer.ErrorResponse(err))
}

// released tells Config.Released that no instance has the request or will have it.
func (d *Batcher) released(r *request) {
	if d.config.Released != nil {
		d.config.Released(r.task.Request)
	}
}

// canceled returns the error for a request whose client has disconnected.
func canceled() error { return &infer.Error{Code: infer.Cancelled} }

// Submitted is a request that another scheduler submits to a Batcher and may take back. The
// sequence batcher uses it: the slots of an instance share a Batcher.
type Submitted request

// Prepare returns a request that is counted with the given times. It is not queued before Enter.
func (d *Batcher) Prepare(ctx context.Context, req *infer.Request, send infer.Sender, timing Timing) *Submitted {
	r := d.newRequest(ctx, req, send)
	r.timing[0] = timing
	return (*Submitted)(r)
}

// Enter queues the request or executes it at once. It is called once.
func (s *Submitted) Enter() error {
	r := (*request)(s)
	if _, err := r.scheduler.begin(r); err != nil {
		return err
	}
	r.scheduler.cancelGone([]*request{r}) // its client may have disconnected before the batcher had it
	return nil
}

// Cancel ends the request if it is queued; otherwise it tells the model.
func (s *Submitted) Cancel() {
	r := (*request)(s)
	r.scheduler.cancel(r)
}

// TakeBack removes the request from its line, and reports whether it was queued.
func (s *Submitted) TakeBack() bool { return (*request)(s).TakeBack() }

// Discard ends a request that has been taken back, without a response.
func (s *Submitted) Discard() {
	r := (*request)(s)
	r.Send = func(response *infer.Response) { response.Release() }
	r.deliver(&infer.Response{Final: true}) // to no client
}

// EndHold ends the effect of batching.Rules.StartWith.
func (d *Batcher) EndHold() {
	d.mu.Lock()
	d.hold = 0
	d.mu.Unlock()
	d.dispatch()
}
