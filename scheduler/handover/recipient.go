package handover

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// Recipient gets the responses of a request: the Sender of a client, or of a BLS request.
type Recipient struct {
	Send infer.Sender
	Log  *zerolog.Logger // the scheduler's
	Call *waitgraph.Call // nil if no execution is known to wait for this
	// Done receives one value when the last response has been handed up; nil if
	// nobody waits.
	Done chan struct{}
	// Unwatch ends the watch over the context of a request that was submitted. It is
	// guarded by the scheduler's mu, and not set any more when the request has ended.
	Unwatch func() bool
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
	if r.Call != nil { // the receiver of the last response may go on before the scheduler has noted the end
		g.Responded(r.Call, last)
	}
	r.pass(response)
	return last
}

// pass calls Send. If that panics, the request ends here all the same.
func (r *Recipient) pass(response *infer.Response) {
	var err error
	defer boundary.Recover(r.Log, boundary.Request, &err)
	r.Send(response)
}

// Dismiss ends the wait of a sender that has had the last response, when the scheduler has noted
// that the request has ended.
func (r *Recipient) Dismiss() {
	if r.Unwatch != nil {
		r.Unwatch()
	}
	if r.Done != nil {
		r.Done <- struct{}{}
	}
}
