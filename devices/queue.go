package devices

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// queue is where commands for one device wait for their turn.
//
//	trusted ──▶ doubtful   a command had no answer in time: those that wait behind it fail with it
//	   ▲────────────┘      a command had an answer
//
// While the device is doubtful one command at a time tries it, and those that come meanwhile fail at once.
//
// The turn is held for one command, with the start of its helper: for CopierConfig.StartTimeout and CopyTimeout at
// most, and EndTimeout for the end of a helper. mu guards the fields below it, and is held for a moment, with the turn or without.
type queue struct {
	turn chan struct{} // of one: filled by the goroutine that has the turn, which takes it out again

	mu       sync.Mutex
	silent   chan struct{} // closed by the command that had no answer, and replaced
	doubtful bool
}

// errBehind is a command that has waited for one that had no answer.
var errBehind = fmt.Errorf("%w, which the copy before this one has found", errSilent)

// errDoubtful is a command that comes while another one finds out whether the driver answers again.
var errDoubtful = fmt.Errorf("%w, and another copy tries it", errSilent)

func newQueue() queue {
	return queue{turn: make(chan struct{}, 1), silent: make(chan struct{})}
}

// enter waits for the turn, which the caller gives up by leave. It ends with ctx, with Cancelled.
func (q *queue) enter(ctx context.Context) error {
	q.mu.Lock()
	silent, doubtful := q.silent, q.doubtful
	q.mu.Unlock()
	select {
	case q.turn <- struct{}{}:
		return nil
	default:
	}
	if doubtful {
		return errDoubtful
	}
	select {
	case q.turn <- struct{}{}:
	case <-silent:
		return errBehind
	case <-ctx.Done():
		return &infer.Error{Code: infer.Cancelled}
	}
	// The command before this one says that it had no answer before it leaves.
	select {
	case <-silent:
		q.leave()
		return errBehind
	default:
		return nil
	}
}

// wait waits for the turn, however long that takes: for what has to be done.
func (q *queue) wait() { q.turn <- struct{}{} }

// leave gives up the turn.
func (q *queue) leave() { <-q.turn }

// answered takes note of whether a command had an answer, or why not. The caller has the turn.
func (q *queue) answered(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case err == nil:
		q.doubtful = false
	case errors.Is(err, errSilent):
		q.doubtful = true
		close(q.silent)
		q.silent = make(chan struct{})
	}
}
