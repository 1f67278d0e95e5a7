package sequence

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/scheduler"
)

// Tally is an Observer that counts.
type Tally struct {
	Waiting, executed, failed atomic.Int64
	Negative                  atomic.Bool // set if the number of pending requests was below 0
}

func (c *Tally) Pending(n int) {
	if c.Waiting.Add(int64(n)) < 0 {
		c.Negative.Store(true)
	}
}

func (c *Tally) Executed(*scheduler.Execution)  { c.executed.Add(1) }
func (c *Tally) Failed(scheduler.Reason, int64) { c.failed.Add(1) }
