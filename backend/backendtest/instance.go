package backendtest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Instance executes each batch for a while, in a goroutine, and answers its tasks
// without outputs. It takes no batch ahead.
type Instance struct {
	name  string
	pause time.Duration
	// Refuse has batches come back unseen, as a lost instance gives them back.
	Refuse atomic.Bool
	// Fail, if not nil, is what tasks are answered with. It is set before the first batch.
	Fail error

	mu       sync.Mutex
	executed []string
	canceled []string
	busy     bool
	overlap  bool
}

// NewInstance returns an instance of a name, whose executions take as long as pause says,
// in the time of the synctest bubble if there is one.
func NewInstance(name string, pause time.Duration) *Instance {
	return &Instance{name: name, pause: pause}
}

// Name implements backend.Instance.
func (in *Instance) Name() string { return in.name }

// Ready implements backend.Instance.
func (in *Instance) Ready(context.Context) error { return nil }

// Execute implements backend.Instance.
func (in *Instance) Execute(b *backend.Batch) {
	if in.Refuse.Load() {
		b.Done(b, backend.Report{Refused: true})
		return
	}
	in.mu.Lock()
	in.overlap = in.overlap || in.busy
	in.busy = true
	in.executed = append(in.executed, b.Tasks[0].Request.ID)
	in.mu.Unlock()
	go func() {
		time.Sleep(in.pause)
		in.mu.Lock()
		in.busy = false
		in.mu.Unlock()
		b.Done(b, backend.Report{Executed: true, Err: in.Fail})
		for _, t := range b.Tasks {
			if in.Fail != nil {
				t.Send(infer.ErrorResponse(in.Fail))
			} else {
				t.Send(&infer.Response{Final: true})
			}
		}
	}()
}

// Cancel implements backend.Canceller: it notes the task, which is answered all the same.
func (in *Instance) Cancel(t *backend.Task) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.canceled = append(in.canceled, t.Request.ID)
}

// Executed returns the ids of the first requests of the batches that the instance was
// given, in their order.
func (in *Instance) Executed() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.executed)
}

// Canceled returns the ids of the requests that Cancel was called for, in that order.
func (in *Instance) Canceled() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.canceled)
}

// Overlapped reports whether the instance was given a batch while it executed another.
func (in *Instance) Overlapped() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.overlap
}
