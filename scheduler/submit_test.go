package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestSubmitCountsLikeInfer sends the same requests with Infer and with Submit and checks that
// counts, responses and rejections are equal.
func TestSubmitCountsLikeInfer(t *testing.T) {
	type outcome struct {
		pending, executed, failed int64
		answers                   [6]string
	}
	run := func(t *testing.T, submit bool) (o outcome) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c, MaxQueue: 3})
		d.Available(backendtest.NewInstance("m_0", time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range o.answers {
			of := t.Context()
			if i == 2 {
				of = ctx
			}
			send := func(r *infer.Response) { o.answers[i] = fmt.Sprintf("answered %v", r.Err) }
			req := &infer.Request{ID: fmt.Sprint(i)}
			if submit {
				if err := d.Submit(of, req, send); err != nil {
					o.answers[i] = "refused " + err.Error()
				}
			} else {
				wg.Go(func() {
					if err := d.Infer(of, req, send); err != nil {
						o.answers[i] = "refused " + err.Error()
					}
				})
			}
			synctest.Wait()
		}
		o.pending = c.Waiting.Load()
		cancel()
		synctest.Wait()
		if err := d.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := d.Submit(t.Context(), &infer.Request{}, nil); err == nil {
			t.Error("a request was accepted after the stop")
		}
		o.executed, o.failed = c.Executions.Load(), c.Failures.Load()
		return o
	}
	synctest.Test(t, func(t *testing.T) {
		inferred, submitted := run(t, false), run(t, true)
		if inferred != submitted {
			t.Errorf("by Submit: got %+v, want what Infer gives: %+v", submitted, inferred)
		}
		if submitted.executed != 3 || submitted.failed != 1 || submitted.pending != 3 {
			t.Errorf("got %+v, want 3 executed, 1 failed, 3 pending", submitted)
		}
	})
}

// TestSubmitWatchesNoLongerThanItLasts checks that the context of a request that has ended has no
// watchers.
func TestSubmitWatchesNoLongerThanItLasts(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}})
	in := backendtest.NewHeld("m_0")
	d.Available(in)
	for name, ctx := range map[string]*watchedContext{
		"answered in time":     {Context: t.Context(), done: make(chan struct{})},
		"answered before that": {Context: t.Context(), done: make(chan struct{}), begun: func() { in.EndAll() }},
	} {
		if err := d.Submit(ctx, &infer.Request{ID: name}, func(*infer.Response) {}); err != nil {
			t.Fatal(err)
		}
		in.EndAll()
		if n := ctx.watchers.Load(); n != 0 {
			t.Errorf("%s: %d watch the context of a request that has ended", name, n)
		}
	}
}

// watchedContext counts its watchers. Its Done is called right after a request has begun.
type watchedContext struct {
	context.Context
	done     chan struct{}
	begun    func()
	watchers atomic.Int64
}

func (c *watchedContext) Done() <-chan struct{} {
	if c.begun != nil {
		c.begun()
	}
	return c.done
}

func (c *watchedContext) AfterFunc(func()) (stop func() bool) {
	c.watchers.Add(1)
	return func() bool {
		c.watchers.Add(-1)
		return true
	}
}

// TestSubmitAnswersOnceUnderStorm submits requests from many goroutines, cancels contexts at any
// moment, loses instances and stops. It checks that each request gets exactly one last response or
// is rejected.
func TestSubmitAnswersOnceUnderStorm(t *testing.T) {
	const soon = 50 * time.Microsecond
	for name, rules := range map[string]*batching.Rules{
		"alone": nil, "batches": {MaxSize: 4}, "in order": {MaxSize: 4, MaxDelay: soon, PreserveOrder: true},
		"with deadlines": {MaxSize: 4, MaxDelay: soon, Policy: &kserve.ModelQueuePolicy{DefaultTimeoutMicroseconds: 60}},
		"with levels": {MaxSize: 4, Levels: 2, DefaultLevel: 1, Policy: &kserve.ModelQueuePolicy{
			DefaultTimeoutMicroseconds: 60, TimeoutAction: kserve.ModelQueuePolicy_DELAY, MaxQueueSize: 40}},
	} {
		t.Run(name, func(t *testing.T) { submitStorm(t, rules) })
	}
}

func submitStorm(t *testing.T, rules *batching.Rules) {
	var c counter
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c, MaxQueue: 50, Batching: rules})
	instances := []*backendtest.Instance{backendtest.NewInstance("0", 0), backendtest.NewInstance("1", 0)}
	for _, in := range instances {
		d.Available(in)
	}
	var wg sync.WaitGroup
	var refused, answered, cancelled atomic.Int64
	const goroutines, each = 16, 150
	for g := range goroutines {
		random := rand.New(rand.NewPCG(uint64(g), 3))
		wg.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(context.Background())
				var finals atomic.Int64
				var own sync.WaitGroup
				own.Add(1)
				err := d.Submit(ctx, &infer.Request{ID: fmt.Sprint(g, i), Priority: uint64(i % 3)}, func(r *infer.Response) {
					if finals.Add(1) == 1 {
						own.Done()
					}
					if r.Err != nil {
						cancelled.Add(1)
					}
				})
				if random.IntN(3) == 0 {
					runtime.Gosched()
				}
				cancel()
				if err != nil {
					refused.Add(1)
					if finals.Load() != 0 {
						t.Error("a refused request was answered")
					}
					continue
				}
				own.Wait()
				answered.Add(1)
				if finals.Load() != 1 {
					t.Errorf("%d answers", finals.Load())
				}
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			for _, in := range instances {
				in.Refuse.Store(true)
				runtime.Gosched()
				d.Lost(in, false)
				in.Refuse.Store(false)
				d.Available(in)
			}
		}
	})
	wg.Wait()
	if err := d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if c.Waiting.Load() != 0 || d.InFlight() != 0 || refused.Load()+answered.Load() != goroutines*each {
		t.Errorf("at the end: %d pending, %d in flight, %d refused, %d answered", c.Waiting.Load(), d.InFlight(), refused.Load(), answered.Load())
	}
	if c.Negative.Load() {
		t.Error("fewer than none were pending for a while")
	}
	if c.Failures.Load() != cancelled.Load() {
		t.Errorf("%d were counted as failed, %d got an error", c.Failures.Load(), cancelled.Load())
	}
}

// TestCancellationReachesReturnedExecutions checks that a cancellation reaches the instance after
// the execution has returned but before the last response.
func TestCancellationReachesReturnedExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}})
		in := backendtest.NewHeld("m_0")
		d.Available(in)
		ctx, cancel := context.WithCancel(t.Context())
		if err := d.Submit(ctx, &infer.Request{ID: "r"}, func(*infer.Response) {}); err != nil {
			t.Fatal(err)
		}
		b := in.Batches[0]
		b.Done(b, backend.Report{Executed: true})
		cancel()
		synctest.Wait()
		if got := fmt.Sprint(in.Canceled()); got != "[r]" {
			t.Errorf("cancelled were %s, want [r]", got)
		}
		b.Tasks[0].Send(&infer.Response{Final: true})
	})
}
