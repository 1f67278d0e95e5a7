package scheduler

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/handover"
	"github.com/nereid-serving/nereid/scheduler/linked"
)

// request is one request on its way, together with the batch that it is if it is
// executed by itself.
type request struct {
	scheduler *Batcher
	task      backend.Task
	timing    [1]Timing
	handover.Recipient
	turn *turn // in the order in which responses leave; nil if there is none

	// Guarded by the scheduler's mu.
	linked.Neighbours[*request] // in its line

	ended    bool
	queued   bool
	picked   bool   // for the batch that is being formed
	turns    uint32 // how often it was given to an instance
	line     int    // which one that is
	alarm    int    // its place among the deadlines, from 1; 0: it has none
	deadline int64  // until when it waits; 0: for ever
	batch    *batch // that it is in, or was in last; nil before
	alone    alone
}

func (d *Batcher) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *request {
	r := &request{scheduler: d, Recipient: handover.Recipient{Send: send, Log: &d.config.Log}}
	r.task = backend.Task{Context: ctx, Request: req, Send: r.deliver}
	r.alone.make(r)
	t := backend.Now()
	r.timing[0] = Timing{BatchSize: req.BatchSize, Start: t, Queued: t}
	req.Queued(t)
	return r
}

// deliver hands a response up in its turn.
func (r *request) deliver(response *infer.Response) {
	if r.turn != nil {
		r.scheduler.order.deliver(r.turn, response)
		return
	}
	r.pass(response)
}

// pass hands a response up and notices the last one.
func (r *request) pass(response *infer.Response) {
	if r.Tell(r.scheduler.config.Graph, response) {
		r.scheduler.end(r)
	}
}

// end takes a request out whose last response has been handed up.
func (d *Batcher) end(r *request) {
	d.mu.Lock()
	r.ended = true
	d.outLocked()
	d.mu.Unlock()
	r.Dismiss()
}

// outLocked counts a request that is in flight no more.
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

// released tells Config.Released that no instance has a request any more,
// nor will have.
func (d *Batcher) released(r *request) {
	if d.config.Released != nil {
		d.config.Released(r.task.Request)
	}
}

// canceled is what a request gets whose client has gone.
func canceled() error { return &infer.Error{Code: infer.Cancelled} }
