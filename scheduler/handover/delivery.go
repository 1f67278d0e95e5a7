package handover

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/processors"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// Delivery passes the responses of a request to its Sender, which belongs to a client or to a
// model.
type Delivery struct {
	Send infer.Sender
	Log  *zerolog.Logger       // the scheduler's
	BLS  *waitgraph.BLSRequest // its node in the wait graph; nil if no execution is known to wait for it
	// Done receives one value when the last response has been sent. It is made for Await with a
	// capacity of one; nil for a submitted request.
	Done     chan struct{}
	answered atomic.Bool // the last response is being sent, or has been sent
	// unwatch stops watching the context of a submitted request. The scheduler's mu guards it. It
	// is not set after the request has ended, so Finish reads it without the lock.
	unwatch func() bool
}

// EnterGraph adds a BLS request to the graph before its scheduler accepts it, or rejects it if
// models call each other too deeply. by is the scheduler's own request.
func (r *Delivery) EnterGraph(g *waitgraph.Graph, by waitgraph.Waiter, req *infer.Request) error {
	if req.Caller == nil {
		return nil
	}
	if err := waitgraph.CheckDepth(req); err != nil {
		return err
	}
	g.Enter(by, req.Caller, &r.BLS)
	return nil
}

// LeaveGraph removes a BLS request that its scheduler has not accepted.
func (r *Delivery) LeaveGraph(g *waitgraph.Graph) {
	if r.BLS != nil {
		g.Leave(r.BLS)
	}
}

// WatchLocked calls cancel when ctx ends, for a submitted request. The caller holds the scheduler's
// mu, and the request has not ended.
func (r *Delivery) WatchLocked(ctx context.Context, cancel func()) {
	r.unwatch = context.AfterFunc(ctx, panics.Guard(*r.Log, panics.Scheduler, cancel, nil))
}

// Await waits for the last response of an accepted request. It spins as long as in asks for it; in
// is nil while the request is queued. If ctx ends first it calls cancel.
func (r *Delivery) Await(ctx context.Context, req *infer.Request, in backend.Instance, cancel func()) {
	if req.Entered != nil {
		req.Entered()
	}
	if req.Caller == nil {
		processors.Begin()
		defer processors.End()
	}
	if in != nil {
		if a := in.Capabilities().Awaiter; a != nil {
			a.Await(r.Done)
		}
	}
	select {
	case <-r.Done:
	case <-ctx.Done():
		cancel()
		<-r.Done
	}
}

// Respond passes a response to the Sender and reports whether it was the last one.
func (r *Delivery) Respond(g *waitgraph.Graph, response *infer.Response) (last bool) {
	last = response.Final
	if last {
		r.answered.Store(true)
	}
	if r.BLS != nil { // the receiver of the last response may continue before the scheduler has noted the end
		g.Responded(r.BLS, last)
	}
	r.pass(response)
	return last
}

// Answered reports whether the last response has been sent.
func (r *Delivery) Answered() bool { return r.answered.Load() }

// pass calls Send. The request ends here even if Send panics.
func (r *Delivery) pass(response *infer.Response) {
	var err error
	defer panics.Recover(r.Log, panics.Request, &err)
	r.Send(response)
}

// Finish ends the wait for the last response. The scheduler has already noted the end of the
// request.
func (r *Delivery) Finish() {
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.Done != nil {
		r.Done <- struct{}{}
	}
}
