package sequence

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// sleeper answers after a pause of the bubble's clock.
type sleeper struct {
	name     string
	pause    time.Duration
	refuse   atomic.Bool
	fail     error
	mu       sync.Mutex
	order    []string
	canceled []string
	busy     bool
	overlap  bool
}

func (f *sleeper) Name() string                { return f.name }
func (f *sleeper) Ready(context.Context) error { return nil }

func (f *sleeper) Execute(b *backend.Batch) {
	if f.refuse.Load() {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	f.mu.Lock()
	f.overlap = f.overlap || f.busy
	f.busy = true
	f.order = append(f.order, b.Tasks[0].Request.ID)
	f.mu.Unlock()
	go func() {
		time.Sleep(f.pause)
		f.mu.Lock()
		f.busy = false
		f.mu.Unlock()
		b.Done(b, backend.Report{Executed: true, Err: f.fail})
		for _, t := range b.Tasks {
			if f.fail != nil {
				t.Send(infer.ErrorResponse(f.fail))
			} else {
				t.Send(&infer.Response{Final: true})
			}
		}
	}()
}

func (f *sleeper) Cancel(t *backend.Task) {
	f.mu.Lock()
	f.canceled = append(f.canceled, t.Request.ID)
	f.mu.Unlock()
}

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

// keeper keeps what it is given, and takes one request ahead.
type keeper struct {
	sleeper
	batches []*backend.Batch
}

func (h *keeper) Ahead() bool { return true }
func (h *keeper) Withdraw()   {}

func (h *keeper) Execute(b *backend.Batch) {
	h.mu.Lock()
	h.batches = append(h.batches, b)
	h.mu.Unlock()
}
