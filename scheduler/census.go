package scheduler

import "context"

// Census counts the requests in flight in a Scheduler, whose mu guards it.
type Census struct {
	inFlight int
	stopped  bool
	drained  chan struct{} // closed when stopped and nothing is in flight
	quiet    chan struct{} // closed when nothing is in flight; nil if nobody waits
}

// NewCensus returns the Census of a Scheduler without requests.
func NewCensus() Census { return Census{drained: make(chan struct{})} }

// EnterLocked counts an accepted request.
func (c *Census) EnterLocked() { c.inFlight++ }

// LeaveLocked counts a request that has ended. It reports whether a stopped scheduler has none
// left.
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

// StopLocked notes that the scheduler accepts no more requests. It reports whether this is the
// first call, and whether nothing was in flight.
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

// Drained returns a channel that is closed when the scheduler has stopped and nothing is in flight.
// It needs no lock.
func (c *Census) Drained() <-chan struct{} { return c.drained }

var atOnce = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wait returns nil when done is closed, or the cause of ctx if that ends first.
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
