package stacked

import (
	"context"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// everybody is the context of a batch: it ends when the contexts of all its tasks have ended.
type everybody struct {
	tasks []*backend.Task
	log   zerolog.Logger

	mu   sync.Mutex
	done chan struct{} // nil until Done is called
	stop []func() bool // end the watches over the contexts
	left int           // watched contexts that have not ended
	over bool          // the batch is answered
}

var _ context.Context = (*everybody)(nil)

// Deadline implements context.Context.
func (e *everybody) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (e *everybody) Value(any) any { return nil }

// Err implements context.Context.
func (e *everybody) Err() error {
	for _, task := range e.tasks {
		if task.Context.Err() == nil {
			return nil
		}
	}
	return context.Canceled
}

// Done implements context.Context. The contexts are watched from its first call on.
func (e *everybody) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done != nil {
		return e.done
	}
	e.done = make(chan struct{})
	e.left = len(e.tasks)
	for _, task := range e.tasks {
		if e.over {
			break
		}
		e.stop = append(e.stop, context.AfterFunc(task.Context, panics.Guard(e.log, panics.Scheduler, e.gone, nil))) // bound: the batch
	}
	return e.done
}

// gone counts a context that has ended.
func (e *everybody) gone() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left == 0 {
		close(e.done)
	}
}

// close ends the watches.
func (e *everybody) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for _, stop := range e.stop {
		stop()
	}
	e.stop = nil
}
