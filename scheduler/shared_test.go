package scheduler_test

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/scheduler"
)

// counter is an Observer that counts.
type counter struct {
	Waiting, Executions, Failures atomic.Int64
	Negative                      atomic.Bool // set if the number of pending requests was below 0
}

func (c *counter) Pending(n int) {
	if c.Waiting.Add(int64(n)) < 0 {
		c.Negative.Store(true)
	}
}

func (c *counter) Executed(*scheduler.Execution) { c.Executions.Add(1) }

func (c *counter) Failed(scheduler.Reason, int64) { c.Failures.Add(1) }

// counted counts its releases.
type counted struct{ Released int }

func (*counted) Retain() {}

func (s *counted) Release() { s.Released++ }
