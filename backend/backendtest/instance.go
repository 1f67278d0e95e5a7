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

// Instance executes each batch for a while, in a goroutine, and answers its tasks without outputs.
// It accepts no batch ahead.
type Instance struct {
	name  string
	pause time.Duration
	// Refuse makes the instance give batches back without looking at them, as a lost instance does.
	Refuse atomic.Bool
	// Fail, if not nil, is the error of all tasks. It is set before the first batch.
	Fail error

	mu       sync.Mutex
	executed []string
	canceled []string
	busy     bool
	overlap  bool
}

// NewInstance returns a named instance whose executions take the time of pause, in a synctest
// bubble its fake time.
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

// Capabilities implements backend.Instance.
func (in *Instance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: in}
}

// Cancel implements backend.Canceller: it records the task, which is answered anyway.
func (in *Instance) Cancel(t *backend.Task) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.canceled = append(in.canceled, t.Request.ID)
}

// Executed returns the ids of the first request of each batch, in order.
func (in *Instance) Executed() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.executed)
}

// Canceled returns the ids of the requests passed to Cancel, in order.
func (in *Instance) Canceled() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.canceled)
}

// Overlapped reports whether the instance received a batch while it executed another.
func (in *Instance) Overlapped() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.overlap
}
