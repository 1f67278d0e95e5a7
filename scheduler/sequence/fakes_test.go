package sequence_test

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/scheduler"
)

// tally is an Observer that counts.
type tally struct {
	Waiting, executed, failed atomic.Int64
	Negative                  atomic.Bool // set if the number of pending requests was below 0
}

func (c *tally) Pending(n int) {
	if c.Waiting.Add(int64(n)) < 0 {
		c.Negative.Store(true)
	}
}

func (c *tally) Executed(*scheduler.Execution)  { c.executed.Add(1) }
func (c *tally) Failed(scheduler.Reason, int64) { c.failed.Add(1) }
