package scheduler

import "context"

// Census counts the requests in flight in a Scheduler: the requests that it has accepted and
// that have not ended. The Scheduler's mu guards it.
type Census struct {
	inFlight int
	stopped  bool
	drained  chan struct{} // closed when stopped and nothing is in flight
	quiet    chan struct{} // closed when nothing is in flight; nil without a wait for that
}

// NewCensus returns the Census of a Scheduler that has no request.
func NewCensus() Census { return Census{drained: make(chan struct{})} }

// EnterLocked counts a request that has been accepted.
func (c *Census) EnterLocked() { c.inFlight++ }

// LeaveLocked counts a request that is in flight no more. It reports whether that
// was the last one of a scheduler that has stopped.
func (c *Census) LeaveLocked() (drained bool) {
	c.inFlight--
	if c.inFlight > 0 {
		return false
	}
	if c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
	if c.stopped {
		close(c.drained)
	}
	return c.stopped
}

// StopLocked notes that the scheduler accepts no more requests. first says that it was not
// stopped before, drained that it had no request then.
func (c *Census) StopLocked() (first, drained bool) {
	if c.stopped {
		return false, false
	}
	c.stopped = true
	if c.inFlight > 0 {
		return true, false
	}
	close(c.drained)
	return true, true
}

// InFlightLocked returns how many requests are in flight.
func (c *Census) InFlightLocked() int { return c.inFlight }

// StoppedLocked reports whether StopLocked has been called.
func (c *Census) StoppedLocked() bool { return c.stopped }

// QuietLocked returns a channel that is closed when nothing is in flight.
func (c *Census) QuietLocked() <-chan struct{} {
	if c.inFlight == 0 {
		return atOnce
	}
	if c.quiet == nil {
		c.quiet = make(chan struct{})
	}
	return c.quiet
}

// Drained returns a channel that is closed when the scheduler has stopped and
// nothing is in flight. It needs no lock.
func (c *Census) Drained() <-chan struct{} { return c.drained }

// atOnce is closed.
var atOnce = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wait waits until done is closed, or ctx has ended, whose cause it returns. A
// channel that is closed already counts first.
func Wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
