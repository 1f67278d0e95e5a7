package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// call is one batch of an instance, with its responses.
type call struct {
	in       backend.Instance
	requests []*asked

	mu       sync.Mutex
	changed  chan struct{} // has a value when something has come since it was emptied
	open     int           // tasks without a final response
	done     int           // calls of Done, less those after which tasks were rescheduled
	outcomes []outcome
}

// outcome is what one task received.
type outcome struct {
	responses []*infer.Response
	copies    [][]byte // of the outputs, one after another, as they were sent
	final     bool
	late      int // responses after the final one
}

// mostRounds is how often a request of an iterative sequence may be rescheduled.
const mostRounds = 1000

// hand gives a batch to an instance. The contexts are those of the tasks.
func hand(ctx []context.Context, in backend.Instance, requests ...*asked) *call {
	c := &call{in: in, requests: requests, changed: make(chan struct{}, 1), open: len(requests), outcomes: make([]outcome, len(requests))}
	tasks := make([]*backend.Task, len(requests))
	for i, r := range requests {
		tasks[i] = &backend.Task{Context: ctx[i%len(ctx)], Request: r.request, Send: func(response *infer.Response) { c.sent(i, response) }}
	}
	c.execute(tasks, mostRounds)
	return c
}

func (c *call) execute(tasks []*backend.Task, rounds int) {
	c.in.Execute(&backend.Batch{Tasks: tasks, Done: func(_ *backend.Batch, report backend.Report) {
		if report.Refused {
			for _, t := range tasks {
				t.Send(infer.ErrorResponse(infer.Errorf(infer.Unavailable, "the instance refused the batch")))
			}
		}
		if len(report.Rescheduled) > 0 && rounds > 0 {
			for _, t := range report.Rescheduled {
				t.Request.Flags = 0
			}
			c.execute(report.Rescheduled, rounds-1)
			return
		}
		c.mu.Lock()
		c.done++
		c.mu.Unlock()
		c.tell()
	}})
}

// sent records a response.
func (c *call) sent(at int, r *infer.Response) {
	if r.Slot != nil { // others may be sent from now on; the bytes stay
		r.Slot.Release()
		r.Slot = nil
	}
	var copied []byte
	for i := range r.Outputs {
		copied = append(copied, r.Outputs[i].Data...)
	}
	c.mu.Lock()
	a := &c.outcomes[at]
	if a.final {
		a.late++
	}
	a.responses, a.copies = append(a.responses, r), append(a.copies, copied)
	if r.Final && !a.final {
		a.final = true
		c.open--
	}
	c.mu.Unlock()
	c.tell()
}

func (c *call) tell() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// over reports whether all expected events have arrived.
func (c *call) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == 0 && c.done > 0 && c.unreleasedLocked() == 0
}

// unreleasedLocked counts the requests whose inputs the backend still holds. Outputs may be
// forwarded inputs, which the suite holds.
func (c *call) unreleasedLocked() (n int) {
	for i, r := range c.requests {
		ours := map[infer.Memory]int64{}
		for _, response := range c.outcomes[i].responses {
			for o := range response.Outputs {
				ours[response.Outputs[o].Memory]++
			}
		}
		if slices.ContainsFunc(r.memories, func(l *countedMemory) bool { return l.references.Load() > 1+ours[l] }) {
			n++
		}
	}
	return n
}

// look is the interval between checks for a release, which arrives without a call.
const look = 2 * time.Millisecond

// wait waits for all events, and returns a description of the missing ones, or "".
func (c *call) wait(limit time.Duration) string {
	end := time.NewTimer(limit)
	defer end.Stop()
	again := time.NewTicker(look)
	defer again.Stop()
	for !c.over() {
		select {
		case <-c.changed:
		case <-again.C:
		case <-end.C:
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case c.done == 0:
				return fmt.Sprintf("Execute has not returned within %s", limit)
			case c.open > 0:
				return fmt.Sprintf("%d of %d requests had no final response within %s", c.open, len(c.requests), limit)
			}
			return fmt.Sprintf("%d of %d requests were answered and not released within %s", c.unreleasedLocked(), len(c.requests), limit)
		}
	}
	return ""
}

// release releases the responses.
func (c *call) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.outcomes {
		for _, r := range c.outcomes[i].responses {
			r.Release()
		}
		c.outcomes[i].responses = nil
	}
}

// failure returns the error of a request, or nil.
func (a *outcome) failure() *infer.Error {
	for _, r := range a.responses {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// same reports whether two requests received the same responses, outputs and errors.
func (a *outcome) same(b *outcome) bool {
	x, y := a.filled(), b.filled()
	return slices.EqualFunc(x, y, func(i, j int) bool {
		one, other := a.responses[i], b.responses[j]
		return (one.Err == nil) == (other.Err == nil) && bytes.Equal(a.copies[i], b.copies[j]) &&
			slices.EqualFunc(one.Outputs, other.Outputs, func(s, t infer.Tensor) bool { return s.Name == t.Name && slices.Equal(s.Shape, t.Shape) })
	})
}

// filled returns the positions of the responses that are not just flags.
func (a *outcome) filled() (positions []int) {
	for i, r := range a.responses {
		if !r.Empty {
			positions = append(positions, i)
		}
	}
	return positions
}

// returned waits for Done.
func (c *call) returned(s *session) bool {
	end := time.NewTimer(s.limit)
	defer end.Stop()
	for {
		c.mu.Lock()
		done := c.done > 0
		c.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-c.changed:
		case <-end.C:
			return false
		}
	}
}
