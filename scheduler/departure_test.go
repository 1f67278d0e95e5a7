package scheduler

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// quiet is a context that has ended once it is told so, without telling anybody:
// whoever watches it has not got round to it yet.
type quiet struct {
	context.Context
	ended atomic.Bool
}

// Err implements context.Context.
func (c *quiet) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// TestSequenceDrainsOnce: what a retired instance would have executed last is
// found to be nobody's when its turn comes.
func TestSequenceDrainsOnce(t *testing.T) {
	bothStrategies(t, func(t *testing.T, c SequenceConfig) {
		s, a, drained, text := NewSequence(c), &taker{name: "a"}, 0, ""
		s.Up(a)
		sendTo(t, s, infer.SequenceStart, &text)
		b := a.take(t)
		client := &quiet{Context: context.Background()}
		next := &infer.Request{BatchSize: 1, Correlation: infer.CorrelationID{Number: 7}}
		if err := s.Submit(client, next, func(r *infer.Response) { text = r.Err.Code.String() }); err != nil {
			t.Fatal(err)
		}
		s.Retire(a, func() { drained++ })
		client.ended.Store(true)
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
		if drained != 1 || text != "Cancelled" {
			t.Errorf("drained was called %d times and the request was answered with %q, want once and Cancelled", drained, text)
		}
	})
}
