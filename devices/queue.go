package devices

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// queue orders the commands for one device.
//
//	trusted ──▶ doubtful   a command timed out: the commands behind it fail too
//	   ▲────────────┘      a command was answered
//
// While the device is doubtful, one command at a time tries it, and those that arrive meanwhile
// fail at once.
//
// The turn is held for one command, including the start of its helper: for at most
// CopierConfig.StartTimeout and CopyTimeout, and EndTimeout for the end of a helper. mu guards the
// fields below it, and is held briefly, with the turn or without.
type queue struct {
	turn chan struct{} // capacity 1: filled by the goroutine that has the turn, which empties it again

	mu       sync.Mutex
	silent   chan struct{} // closed by a command that timed out, and replaced
	doubtful bool
}

// errBehind is the error of a command that waited for one that timed out.
var errBehind = fmt.Errorf("%w, which the copy before this one has found", errSilent)

// errDoubtful is the error of a command that arrives while another one tests whether the driver
// responds again.
var errDoubtful = fmt.Errorf("%w, and another copy tries it", errSilent)

func newQueue() queue {
	return queue{turn: make(chan struct{}, 1), silent: make(chan struct{})}
}

// enter waits for the turn, which the caller gives up by leave. If ctx ends first, the error is
// Cancelled.
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
	// The command before this one reports a timeout before it leaves.
	select {
	case <-silent:
		q.leave()
		return errBehind
	default:
		return nil
	}
}

// wait waits for the turn without a limit, for work that must be done.
func (q *queue) wait() { q.turn <- struct{}{} }

// leave gives up the turn.
func (q *queue) leave() { <-q.turn }

// answered records whether a command was answered. The caller has the turn.
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
