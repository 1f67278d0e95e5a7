package scheduler

import "github.com/nereid-serving/nereid/infer"

// asker is who wants the responses of a request.
type asker struct {
	send infer.Sender
	call *call // nil if no execution waits for this
	// done receives one value when the last response has been handed up; nil if
	// nobody waits.
	done chan struct{}
	// unwatch ends the watch over the context of one that nobody waits for. It is
	// guarded by the scheduler's mu, and not set any more when the request has ended.
	unwatch func() bool
}

// tell hands a response up and reports whether it was the last one.
func (a *asker) tell(g *Graph, response *infer.Response) (last bool) {
	last = response.Final
	if c := a.call; c != nil {
		c.sent.Add(1)
		if last { // who gets it may go on before the scheduler has noted the end
			g.leave(c)
		}
	}
	a.send(response)
	return last
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
