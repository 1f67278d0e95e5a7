package sequence

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/scheduler"
)

// tally is an Observer.
type tally struct {
	pending, executed, failed atomic.Int64
	negative                  atomic.Bool // pending has been less than none
}

func (c *tally) Pending(n int) {
	if c.pending.Add(int64(n)) < 0 {
		c.negative.Store(true)
	}
}

func (c *tally) Executed(*scheduler.Execution)  { c.executed.Add(1) }
func (c *tally) Failed(scheduler.Reason, int64) { c.failed.Add(1) }
