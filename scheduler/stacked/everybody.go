package stacked

import (
	"context"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// everybody is the context of a batch: it ends when those of all its tasks have.
type everybody struct {
	tasks []*backend.Task
	log   zerolog.Logger

	mu   sync.Mutex
	done chan struct{} // nil until Done is called
	stop []func() bool // end the watches over the tasks
	left int           // tasks whose contexts have not ended, while they are watched
	over bool          // the batch has been answered
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

// Done implements context.Context. No request is watched before it is called.
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
		e.stop = append(e.stop, context.AfterFunc(task.Context, panics.Guard(e.log, panics.Scheduler, e.gone, nil)))
	}
	return e.done
}

// gone counts a task whose context has ended.
func (e *everybody) gone() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left == 0 {
		close(e.done)
	}
}

// close ends the watch: the batch has been answered.
func (e *everybody) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for _, stop := range e.stop {
		stop()
	}
	e.stop = nil
}
