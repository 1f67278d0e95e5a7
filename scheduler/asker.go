package scheduler

import (
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// asker is who wants the responses of a request.
type asker struct {
	send infer.Sender
	log  *zerolog.Logger // the scheduler's
	call *waitgraph.Call // nil if no execution waits for this
	// done receives one value when the last response has been handed up; nil if
	// nobody waits.
	done chan struct{}
	// unwatch ends the watch over the context of one that nobody waits for. It is
	// guarded by the scheduler's mu, and not set any more when the request has ended.
	unwatch func() bool
}

// tell hands a response up and reports whether it was the last one.
func (a *asker) tell(g *waitgraph.Graph, response *infer.Response) (last bool) {
	last = response.Final
	if a.call != nil { // who gets the last may go on before the scheduler has noted the end
		g.Responded(a.call, last)
	}
	a.hand(response)
	return last
}

// hand calls the asker's Sender. If that panics, the request ends here all the same.
func (a *asker) hand(response *infer.Response) {
	var err error
	defer boundary.Recover(a.log, boundary.Request, &err)
	a.send(response)
}

// dismiss lets go of who has had the last response, when the scheduler has noted
// that the request has ended.
func (a *asker) dismiss() {
	if a.unwatch != nil {
		a.unwatch()
	}
	if a.done != nil {
		a.done <- struct{}{}
	}
}
