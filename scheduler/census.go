package scheduler

import "context"

// census counts the requests inside a scheduler: those that it has accepted and
// that have not ended. It is guarded by the scheduler's mu.
type census struct {
	inside  int
	stopped bool
	drained chan struct{} // closed when stopped and nothing is inside
	quiet   chan struct{} // closed when nothing is inside; nil while nobody waits for that
}

func newCensus() census { return census{drained: make(chan struct{})} }

// outLocked counts a request that is inside no more. It reports whether that
// was the last one of a scheduler that has stopped.
func (c *census) outLocked() (drained bool) {
	c.inside--
	if c.inside > 0 {
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

// stopLocked notes that nothing comes in any more. First says that nobody has
// stopped the scheduler before, drained that nothing was inside then.
func (c *census) stopLocked() (first, drained bool) {
	if c.stopped {
		return false, false
	}
	c.stopped = true
	if c.inside > 0 {
		return true, false
	}
	close(c.drained)
	return true, true
}

// quietLocked returns a channel that is closed when nothing is inside.
func (c *census) quietLocked() <-chan struct{} {
	if c.inside == 0 {
		return atOnce
	}
	if c.quiet == nil {
		c.quiet = make(chan struct{})
	}
	return c.quiet
}

// atOnce is closed.
var atOnce = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// closed waits until a channel is, or ctx has ended, whose cause it returns. A
// channel that is closed already counts first.
func closed(ctx context.Context, done <-chan struct{}) error {
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
