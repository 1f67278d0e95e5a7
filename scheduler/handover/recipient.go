package handover

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// Recipient gets the responses of a request: the Sender of a client, or of a BLS request.
type Recipient struct {
	Send infer.Sender
	Log  *zerolog.Logger       // the scheduler's
	BLS  *waitgraph.BLSRequest // in the wait graph; nil if no execution is known to wait for this
	// Done receives one value when the last response has been handed up. It is made
	// for Await, with room for that value; nil for a request that is submitted.
	Done     chan struct{}
	answered atomic.Bool // the last response is being handed up, or has been
	// unwatch ends the watch over the context of a request that was submitted. It is
	// guarded by the scheduler's mu, and not set any more when the request has ended:
	// Dismiss may read it without.
	unwatch func() bool
}

// EnterGraph notes a BLS request in the graph, before its scheduler has accepted it, and
// refuses it if models call each other too deep. by is the scheduler's own request.
func (r *Recipient) EnterGraph(g *waitgraph.Graph, by waitgraph.Waiter, req *infer.Request) error {
	if req.Caller == nil {
		return nil
	}
	if err := waitgraph.CheckDepth(req); err != nil {
		return err
	}
	g.Enter(by, req.Caller, &r.BLS)
	return nil
}

// LeaveGraph takes a BLS request out of the graph that its scheduler has not accepted.
func (r *Recipient) LeaveGraph(g *waitgraph.Graph) {
	if r.BLS != nil {
		g.Leave(r.BLS)
	}
}

// WatchLocked has cancel called when ctx ends, for a request that no goroutine awaits.
// The caller holds the scheduler's mu, and the request has not ended.
func (r *Recipient) WatchLocked(ctx context.Context, cancel func()) {
	r.unwatch = context.AfterFunc(ctx, panics.Guard(*r.Log, panics.Scheduler, cancel, nil))
}

// Await waits for the last response of a request that its scheduler has accepted,
// actively as long as in says so, which is nil while the request waits; cancel is
// called when ctx ends first.
func (r *Recipient) Await(ctx context.Context, req *infer.Request, in backend.Instance, cancel func()) {
	if req.Entered != nil {
		req.Entered()
	}
	if w, ok := in.(backend.Awaiter); ok {
		w.Await(r.Done)
	}
	select {
	case <-r.Done:
	case <-ctx.Done():
		cancel()
		<-r.Done
	}
}

// Tell hands a response up and reports whether it was the last one.
func (r *Recipient) Tell(g *waitgraph.Graph, response *infer.Response) (last bool) {
	last = response.Final
	if last {
		r.answered.Store(true)
	}
	if r.BLS != nil { // the receiver of the last response may go on before the scheduler has noted the end
		g.Responded(r.BLS, last)
	}
	r.pass(response)
	return last
}

// Answered reports whether the request has had its last response.
func (r *Recipient) Answered() bool { return r.answered.Load() }

// pass calls Send. If that panics, the request ends here all the same.
func (r *Recipient) pass(response *infer.Response) {
	var err error
	defer panics.Recover(r.Log, panics.Request, &err)
	r.Send(response)
}

// Dismiss ends the wait of a sender that has had the last response, when the scheduler has noted
// that the request has ended.
func (r *Recipient) Dismiss() {
	if r.unwatch != nil {
		r.unwatch()
	}
	if r.Done != nil {
		r.Done <- struct{}{}
	}
}
