package process_test

import (
	"context"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// TestCancellationReachesARunningModel cancels a request in a running model and expects the model
// to notice.
func TestCancellationReachesARunningModel(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("waits_for_cancellation", infer.Uint8)
	answers := make(chan *infer.Response, 1)
	done := make(chan backend.Report, 1)
	task := &backend.Task{Context: context.Background(), Request: r.small(), Send: func(a *infer.Response) { answers <- a }}
	for range 3 {
		m.instance().Execute(&backend.Batch{
			Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) { done <- report },
		})
		m.instance().Cancel(task)
		select {
		case answer := <-answers:
			if answer.Err == nil || answer.Err.Code != infer.Cancelled || answer.Err.Message != "nobody waits" {
				t.Errorf("got error %v, want the model's", answer.Err)
			}
		case <-time.After(patience):
			t.Fatal("model has not noticed that its request is cancelled")
		}
		<-done
	}
	m.instance().Cancel(task) // already answered: no effect
}
