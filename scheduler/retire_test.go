package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
)

// TestRetiredInstancesGetNothingMore takes an instance out of service that is idle, that executes, that
// has one ahead, that is lost meanwhile, and that was never up.
func TestRetiredInstancesGetNothingMore(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    []string
		want     []int // how often drained was called, after each step
		answered int   // instances that had no request without its last response
	}{
		{"idle", []string{"retire a0", "ask r a", "runs r"}, []int{1, 1, 1}, 1},
		{"answered", []string{"ask r a", "ask s a", "answer r", "say s", "retire a0", "retire a1", "end s", "end r"}, []int{0, 0, 0, 0, 0, 0, 1, 2}, 1},
		{"executing", []string{"ask r a", "ask s a", "retire a0", "retire a1", "ask t a", "end r", "waits t", "end s", "waits t", "up a0", "waits t"},
			[]int{0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2}, 0},
		{"lost", []string{"ask r a", "ask s a", "retire a0", "retire a1", "restart a0", "lose a1", "ask t a", "up a0", "waits t"},
			[]int{0, 0, 0, 0, 1, 2, 2, 2, 2}, 0},
		{"never up", []string{"restart a0", "retire a0", "up a0", "ask r a", "ask s a", "waits s"}, []int{0, 1, 1, 1, 1, 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "a2")
			for i, step := range c.steps {
				if err := w.step(step); err != nil {
					t.Fatalf("step %q: %v", step, err)
				}
				if w.drained != c.want[i] {
					t.Fatalf("after %q: drained was called %d times, want %d", step, w.drained, c.want[i])
				}
			}
			if w.answered != c.answered {
				t.Errorf("%d instances had answered everything, want %d", w.answered, c.answered)
			}
			fresh := &actor{world: w, name: "a9", model: "a"}
			w.models["a"].Available(fresh)
			w.finish()
			for name, a := range w.instances {
				if !slices.ContainsFunc(c.steps, func(s string) bool { return s == "retire "+name }) {
					continue
				}
				w.models["a"].Lost(a, true)
				w.models["a"].Lost(a, true) // hopeless before its end, which is said besides
				if list := w.models["a"].instances.MembersLocked(); slices.ContainsFunc(list, func(m *member) bool { return m.Instance() == a }) {
					t.Errorf("%s is a member again", name)
				}
				w.models["a"].Forget(a)
			}
			if n := w.models["a"].instances.RememberedLocked(); n != 0 {
				t.Errorf("%d retired instances are kept after their end", n)
			}
		})
	}
}

// TestRetireClosesADeadlock: the last instance that could have executed a call
// takes no more.
func TestRetireClosesADeadlock(t *testing.T) {
	w := newWorld(t, "a2")
	for _, step := range []string{"ask r a", "ask s a", "call q r a", "waits q"} {
		if err := w.step(step); err != nil {
			t.Fatalf("step %q: %v", step, err)
		}
	}
	if err := w.step("retire " + w.asked["s"].by.name); err != nil {
		t.Fatal(err)
	}
	want := "Model 'a' cannot be called: every instance of it waits for this call (a → a)"
	if got := w.asked["q"].final.Load(); got == nil || got.Err == nil || got.Err.Message != want {
		t.Errorf("the call: got %v, want %s", got, want)
	}
	w.finish()
}

// TestRetireLeavesNoHope: what waits is refused when the instances that remain
// are lost for good.
func TestRetireLeavesNoHope(t *testing.T) {
	w := newWorld(t, "a2")
	for _, step := range []string{"ask r a", "lose a0", "ask s a", "ask t a", "retire a1", "wait 1"} {
		_ = w.step(step)
	}
	for _, id := range []string{"r", "s", "t"} {
		if r := w.asked[id]; r.by == nil && !r.over() {
			t.Errorf("request %s waits for nobody", id)
		}
	}
	w.finish()
}

// TestReleasedIsCalledOnceForEachRequest counts the calls for requests that are executed, refused by a
// lost instance and executed again, cancelled, and refused without hope.
func TestReleasedIsCalledOnceForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		released := map[string]int{}
		d := NewBatcher(BatcherConfig{Observer: &counter{}, MaxQueue: 3, Released: func(r *infer.Request) {
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
		time.Sleep(1500 * time.Millisecond) // while the third is executed
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

// TestRetireWhileOneIsAhead gives back nothing that the instance has.
func TestRetireWhileOneIsAhead(t *testing.T) {
	d := NewBatcher(BatcherConfig{Observer: &counter{}})
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
