package scheduler_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// TestRescheduleIsRefusedUnlessIterative checks that the client gets an error if a model that is
// not iterative reschedules a request, and that the instance continues to serve.
func TestRescheduleIsRefusedUnlessIterative(t *testing.T) {
	var counts counter
	var log strings.Builder
	in := backendtest.NewHeld("m_0")
	released := 0
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Model: "m", Observer: &counts, Log: zerolog.New(&log), Released: func(*infer.Request) { released++ }})
	d.Available(in)
	answers := map[string]*infer.Response{}
	for _, id := range []string{"first", "next"} {
		if err := d.Submit(t.Context(), &infer.Request{ID: id}, func(r *infer.Response) { answers[id] = r }); err != nil {
			t.Fatal(err)
		}
	}
	first := in.Batches[0]
	first.Done(first, backend.Report{Executed: true, Rescheduled: first.Tasks})
	const want = "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag."
	if r := answers["first"]; r == nil || r.Err == nil || r.Err.Message != want || !r.Final {
		t.Errorf("the client got %+v, want %s", r, want)
	}
	if want := `{"level":"error","message":"Failed to release request: ` + want; !strings.HasPrefix(log.String(), want) {
		t.Errorf("the log has %s, want %s", log.String(), want)
	}
	next := in.Batches[1]
	next.Done(next, backend.Report{Executed: true})
	next.Tasks[0].Send(&infer.Response{Final: true})
	if r := answers["next"]; r == nil || r.Err != nil {
		t.Errorf("the next request got %+v", r)
	}
	if counts.Executions.Load() != 2 || counts.Failures.Load() != 1 || d.InFlight() != 0 || released != 2 {
		t.Errorf("%d executed, %d failed, %d in flight, %d released, want 2, 1, 0, 2", counts.Executions.Load(), counts.Failures.Load(), d.InFlight(), released)
	}
}
