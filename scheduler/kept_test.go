package scheduler_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestNothingIsKeptAfterItsEnd checks that a batcher keeps neither requests after their last
// responses nor instances after Forget.
func TestNothingIsKeptAfterItsEnd(t *testing.T) {
	for name, rules := range map[string]*batching.Rules{
		"alone": nil, "batches": {MaxSize: 3}, "in order": {MaxSize: 3, PreserveOrder: true},
		"with deadlines":   {MaxSize: 3, Policy: &kserve.ModelQueuePolicy{DefaultTimeoutMicroseconds: 3_600_000_000, AllowTimeoutOverride: true}},
		"late, with delay": {MaxSize: 3, MaxDelay: time.Second, Policy: &kserve.ModelQueuePolicy{DefaultTimeoutMicroseconds: 1500, TimeoutAction: kserve.ModelQueuePolicy_DELAY}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: rules})
				requests, in := endAll(t, d)
				synctest.Wait() // for the goroutines of the instance
				runtime.GC()
				for i, r := range requests {
					if r.Value() != nil {
						t.Errorf("request %d is kept", i)
					}
				}
				if in.Value() != nil {
					t.Error("the instance is kept")
				}
				runtime.KeepAlive(d)
			})
		})
	}
}

// endAll executes requests, cancels some of them, and lets some expire if the rules allow it.
func endAll(t *testing.T, d *scheduler.Batcher) (requests []weak.Pointer[infer.Request], instance weak.Pointer[backendtest.Instance]) {
	in := backendtest.NewInstance("0", time.Second)
	instance = weak.Make(in)
	d.Available(in)
	for i := range 12 {
		req := &infer.Request{ID: fmt.Sprint(i), BatchSize: 1}
		requests = append(requests, weak.Make(req))
		ctx, cancel := context.WithCancel(t.Context())
		if i%4 == 3 {
			time.AfterFunc(time.Second/2, cancel)
		} else {
			t.Cleanup(cancel)
		}
		if i%4 == 2 {
			req.TimeoutMicros = 1000
		}
		if err := d.Submit(ctx, req, func(*infer.Response) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	drained := make(chan struct{})
	d.Retire(in, func() { close(drained) })
	<-drained
	d.Forget(in)
	return requests, instance
}
