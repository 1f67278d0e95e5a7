package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// TestReleasedIsCalledOnceForEachRequest counts the calls of Released for requests that are
// executed, refused by a lost instance and executed again, cancelled, or rejected because no
// instance is left.
func TestReleasedIsCalledOnceForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		released := map[string]int{}
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, MaxQueue: 3, Released: func(r *infer.Request) {
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
