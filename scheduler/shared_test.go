package scheduler

import "sync/atomic"

// Counter is an Observer that counts.
type Counter struct {
	Waiting, Executions, Failures atomic.Int64
	Negative                      atomic.Bool // set if the number of pending requests was below 0
}

func (c *Counter) Pending(n int) {
	if c.Waiting.Add(int64(n)) < 0 {
		c.Negative.Store(true)
	}
}

func (c *Counter) Executed(*Execution) { c.Executions.Add(1) }

func (c *Counter) Failed(Reason, int64) { c.Failures.Add(1) }

func mark(final bool) string {
	if final {
		return "!"
	}
	return "."
}

// Counted counts its releases.
type Counted struct{ Released int }

func (*Counted) Retain() {}

func (s *Counted) Release() { s.Released++ }
