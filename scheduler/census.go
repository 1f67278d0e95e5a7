package scheduler

import "context"

// Census counts the requests in flight in a Scheduler, whose mu guards it.
type Census struct {
	inFlight int
	stopped  bool
	quiet    chan struct{} // closed when nothing is in flight; nil if nobody waits
}

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
	return c.stopped
}

// StopLocked notes that the scheduler accepts no more requests. It reports whether this is the
// first call, and whether nothing was in flight.
func (c *Census) StopLocked() (first, drained bool) {
	first = !c.stopped
	c.stopped = true
	return first, first && c.inFlight == 0
}

// InFlightLocked returns how many requests are in flight.
func (c *Census) InFlightLocked() int { return c.inFlight }

// StoppedLocked reports whether StopLocked has been called.
func (c *Census) StoppedLocked() bool { return c.stopped }

// QuietLocked returns a channel that is closed when nothing is in flight.
func (c *Census) QuietLocked() <-chan struct{} {
	if c.quiet == nil {
		c.quiet = make(chan struct{})
	}
	quiet := c.quiet
	if c.inFlight == 0 {
		close(c.quiet)
		c.quiet = nil
	}
	return quiet
}

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
