package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// TestRetireClosesADeadlock checks that a waiting call is rejected when the last instance that
// could execute it is retired.
func TestRetireClosesADeadlock(t *testing.T) {
	w := scheduler.NewWorld(t, "a2")
	for _, step := range []string{"ask r a", "ask s a", "call q r a", "waits q"} {
		if err := w.Step(step); err != nil {
			t.Fatalf("step %q: %v", step, err)
		}
	}
	if err := w.Step("retire " + w.Asked["s"].By.Called); err != nil {
		t.Fatal(err)
	}
	want := "Model 'a' cannot be called: every instance of it waits for this call (a → a)"
	if got := w.Asked["q"].Final.Load(); got == nil || got.Err == nil || got.Err.Message != want {
		t.Errorf("the call: got %v, want %s", got, want)
	}
	w.Finish()
}

// TestRetireLeavesNoHope checks that waiting requests are rejected when one instance is retired and
// the other is lost for good.
func TestRetireLeavesNoHope(t *testing.T) {
	w := scheduler.NewWorld(t, "a2")
	for _, step := range []string{"ask r a", "lose a0", "ask s a", "ask t a", "retire a1", "wait 1"} {
		_ = w.Step(step)
	}
	for _, id := range []string{"r", "s", "t"} {
		if r := w.Asked[id]; r.By == nil && !r.Over() {
			t.Errorf("request %s waits for nobody", id)
		}
	}
	w.Finish()
}

// TestReleasedIsCalledOnceForEachRequest counts the calls of Released for requests that are
// executed, refused by a lost instance and executed again, cancelled, or rejected because no
// instance is left.
func TestReleasedIsCalledOnceForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		released := map[string]int{}
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}, MaxQueue: 3, Released: func(r *infer.Request) {
			mu.Lock()
			released[r.ID]++
			mu.Unlock()
		}})
		in := backendtest.NewInstance("m_0", time.Second)
		d.Available(in)
		in.Refuse.Store(true)
		gone, cancel := context.WithCancel(t.Context())
		for _, id := range []string{"executed", "cancelled", "third", "refused"} {
			ctx := t.Context()
			if id == "cancelled" {
				ctx = gone
			}
			err := d.Submit(ctx, &infer.Request{ID: id}, func(*infer.Response) {})
			if (err != nil) != (id == "refused") {
				t.Fatalf("request %s: %v", id, err)
			}
		}
		cancel()
		synctest.Wait()
		d.Lost(in, false)
		in.Refuse.Store(false)
		d.Available(in)
		time.Sleep(1500 * time.Millisecond) // while the third is executing
		for _, id := range []string{"fourth", "fifth"} {
			if err := d.Submit(t.Context(), &infer.Request{ID: id}, func(*infer.Response) {}); err != nil {
				t.Fatal(err)
			}
		}
		d.Lost(in, true)
		synctest.Wait()
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(released); got != "map[cancelled:1 executed:1 fifth:1 fourth:1 third:1]" {
			t.Errorf("released: got %s, want each accepted request once", got)
		}
	})
}

// TestRetireWhileOneIsAhead checks that a retired instance keeps its batch ahead and is drained
// after it.
func TestRetireWhileOneIsAhead(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}})
	in := backendtest.NewHeld("m_0")
	d.Available(in)
	var errs []error
	for range 3 {
		errs = append(errs, d.Submit(t.Context(), &infer.Request{}, func(*infer.Response) {}))
	}
	drained := 0
	d.Retire(in, func() { drained++ })
	for want := range 2 {
		if drained != 0 || len(in.Batches) != 2-want {
			t.Fatalf("drained %d times with %d batches inside", drained, len(in.Batches))
		}
		b := in.Batches[0]
		in.Batches = in.Batches[1:]
		b.Done(b, backend.Report{Executed: true})
		b.Tasks[0].Send(&infer.Response{Final: true})
	}
	if drained != 1 || d.InFlight() != 1 || errors.Join(errs...) != nil {
		t.Errorf("drained %d times, %d in flight, want 1 and the one that waits; %v", drained, d.InFlight(), errors.Join(errs...))
	}
}
