package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// ask sends a request and returns its final response.
func ask(d *scheduler.Batcher, ctx context.Context, id string) (*infer.Response, error) {
	var last *infer.Response
	err := d.Infer(ctx, &infer.Request{ID: id}, func(r *infer.Response) { last = r })
	return last, err
}

func TestBatcherServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		in := backendtest.NewInstance("m_0", time.Second)
		d.Available(in)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if r, err := ask(d, t.Context(), fmt.Sprint(i)); err != nil || r.Err != nil {
					t.Errorf("request %d: %v %v", i, r, err)
				}
			})
			synctest.Wait() // so that the requests arrive in this order
		}
		if got := c.Waiting.Load(); got != 4 {
			t.Errorf("pending while the first runs: got %d, want 4", got)
		}
		wg.Wait()
		if got := fmt.Sprint(in.Executed()); got != "[0 1 2 3 4]" {
			t.Errorf("order: got %s", got)
		}
		if in.Overlapped() {
			t.Error("two batches were inside one instance")
		}
		if c.Waiting.Load() != 0 || c.Executions.Load() != 5 || d.InFlight() != 0 {
			t.Errorf("at the end: %d pending, %d executed, %d in flight", c.Waiting.Load(), c.Executions.Load(), d.InFlight())
		}
	})
}

func TestBatcherUsesAllInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		instances := []*backendtest.Instance{backendtest.NewInstance("a", time.Second), backendtest.NewInstance("b", time.Second), backendtest.NewInstance("c", time.Second)}
		for _, in := range instances {
			d.Available(in)
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { _, _ = ask(d, t.Context(), fmt.Sprint(i)) })
		}
		wg.Wait()
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("6 requests of 1 s on 3 instances took %s, want 2s", took)
		}
	})
}

// instantInstance is an instance that responds at once and records its executions.
type instantInstance struct {
	name  string
	order *[]string // names of executing instances
}

func (p instantInstance) Name() string              { return p.name }
func (instantInstance) Ready(context.Context) error { return nil }

func (instantInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (p instantInstance) Execute(b *backend.Batch) {
	*p.order = append(*p.order, p.name)
	b.Done(b, backend.Report{Executed: true, End: backend.Now()})
	b.Tasks[0].Send(&infer.Response{Final: true})
}

// TestSlowRequestsGoRound checks that requests with long pauses between them go to all instances in
// turn, so that operators see that all of them work. Other requests go to the instance that was
// used last.
func TestSlowRequestsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}})
		for _, name := range []string{"a", "b", "c"} {
			d.Available(instantInstance{name, &order})
		}
		for _, pause := range []time.Duration{0, scheduler.Restful, time.Second, time.Hour, scheduler.Restful - 1, time.Millisecond, 0, scheduler.Restful} {
			time.Sleep(pause)
			if _, err := ask(d, t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(order, " "); got != "a b c a a a a b" {
			t.Errorf("got %s, want a b c a a a a b", got)
		}
	})
}

func TestBatcherBoundsItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{MaxQueue: 2, Observer: &c})
		d.Available(backendtest.NewInstance("m_0", time.Second))
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { _, _ = ask(d, t.Context(), fmt.Sprint(i)) })
			synctest.Wait()
		}
		_, err := ask(d, t.Context(), "x")
		var e *infer.Error
		if !errors.As(err, &e) || e.Code != infer.Unavailable || e.Message != "[request id: x] Exceeds maximum queue size" {
			t.Errorf("fourth request: got %v", err)
		}
		wg.Wait()
	})
}

func TestBatcherCancelsRunningAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		in := backendtest.NewInstance("m_0", time.Minute)
		d.Available(in)
		running, cancelRunning := context.WithCancel(t.Context())
		waiting, cancelWaiting := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if r, err := ask(d, running, "running"); err != nil || r.Err != nil {
				t.Errorf("running request: got %v %v, want the model's answer", r.Err, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			r, err := ask(d, waiting, "waiting")
			if err != nil || r.Err == nil || r.Err.Code != infer.Cancelled || r.Err.Message != "" {
				t.Errorf("waiting request: got %v %v, want Cancelled without a text", r, err)
			}
		})
		synctest.Wait()
		cancelWaiting()
		synctest.Wait()
		cancelRunning()
		wg.Wait()
		if fmt.Sprint(in.Executed(), in.Canceled()) != "[running] [running]" {
			t.Errorf("executed %v, cancelled %v; want running alone in both", in.Executed(), in.Canceled())
		}
		if c.Failures.Load() != 1 || c.Waiting.Load() != 0 {
			t.Errorf("failed %d, pending %d; want 1 and 0", c.Failures.Load(), c.Waiting.Load())
		}
	})
}

// TestBatcherWhenAnInstanceIsLost checks that a refused batch is executed when the instance is
// available again, and that no request is lost or executed twice.
func TestBatcherWhenAnInstanceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		in := backendtest.NewInstance("m_0", time.Second)
		d.Available(in)
		in.Refuse.Store(true)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if r, err := ask(d, t.Context(), fmt.Sprint(i)); err != nil || r.Err != nil {
					t.Errorf("request %d: %v %v", i, r, err)
				}
			})
			synctest.Wait()
		}
		d.Lost(in, false)
		synctest.Wait()
		in.Refuse.Store(false)
		d.Available(in)
		wg.Wait()
		if order := in.Executed(); len(order) != 3 || order[0] != "0" {
			t.Errorf("order after the loss: got %v, want 0 first and three in all", order)
		}
		if c.Waiting.Load() != 0 {
			t.Errorf("pending: got %d, want 0", c.Waiting.Load())
		}
	})
}

func TestBatcherWithoutHopeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		in := backendtest.NewInstance("m_0", time.Second)
		d.Available(in)
		d.Lost(in, false)
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := ask(d, t.Context(), "w")
			if err != nil || r.Err == nil || r.Err.Message != "Stub process 'm_0' is not healthy." {
				t.Errorf("waiting request: got %v %v", r, err)
			}
		})
		synctest.Wait()
		d.Lost(in, true)
		wg.Wait()
		if _, err := ask(d, t.Context(), "n"); err == nil || err.Error() != "Stub process 'm_0' is not healthy." {
			t.Errorf("new request: got %v", err)
		}
		d.Available(in)
		if r, err := ask(d, t.Context(), "h"); err != nil || r.Err != nil {
			t.Errorf("request after the healing: got %v %v", r, err)
		}
	})
}

func TestBatcherStopsWhenAllIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		d.Available(backendtest.NewInstance("m_0", time.Second))
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				if r, err := ask(d, t.Context(), fmt.Sprint(i)); err != nil || r.Err != nil {
					t.Errorf("request %d, accepted before the stop: %v %v", i, r, err)
				}
			})
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := d.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop with little time: got %v", err)
		}
		_, err := ask(d, t.Context(), "late")
		want := "[request id: late] Server is stopping, scheduler for model has stopped accepting new inference requests"
		if err == nil || err.Error() != want {
			t.Errorf("late request: got %v", err)
		}
		if err := d.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		wg.Wait()
	})
}

// aheadInstance is an instance that takes batches ahead if ahead is set, and executes one at a
// time.
type aheadInstance struct {
	*backendtest.Instance
	ahead atomic.Bool
	queue chan *backend.Batch

	mu    sync.Mutex
	given []string
}

func newAheadInstance(name string, pause time.Duration) *aheadInstance {
	a := &aheadInstance{Instance: backendtest.NewInstance(name, pause), queue: make(chan *backend.Batch, 8)}
	a.ahead.Store(true)
	go func() {
		for b := range a.queue {
			time.Sleep(pause)
			b.Done(b, backend.Report{Executed: true})
			b.Tasks[0].Send(&infer.Response{Final: true})
		}
	}()
	return a
}

func (a *aheadInstance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Canceller: a, Pipeliner: a}
}

func (a *aheadInstance) Ahead() bool { return a.ahead.Load() }
func (a *aheadInstance) Withdraw()   {}

func (a *aheadInstance) Execute(b *backend.Batch) {
	a.mu.Lock()
	a.given = append(a.given, b.Tasks[0].Request.ID)
	a.mu.Unlock()
	a.queue <- b
}

func (a *aheadInstance) has() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.given)
}

func (a *aheadInstance) handed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.given)
}

func TestBatcherHandsOverAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		a, b := newAheadInstance("a", time.Second), newAheadInstance("b", time.Second)
		defer close(a.queue)
		defer close(b.queue)
		d.Available(a)
		d.Available(b)
		var wg sync.WaitGroup
		send := func(id string) {
			wg.Go(func() {
				if r, err := ask(d, t.Context(), id); err != nil || r.Err != nil {
					t.Errorf("request %s: %v %v", id, r, err)
				}
			})
			synctest.Wait()
		}
		send("0")
		send("1")
		if a.has() != "[1]" && a.has() != "[0]" || b.has() != "[1]" && b.has() != "[0]" {
			t.Errorf("a has %s, b has %s: an idle instance comes before one that executes", a.has(), b.has())
		}
		a.ahead.Store(false)
		b.ahead.Store(false)
		send("2")
		if c.Waiting.Load() != 1 {
			t.Errorf("%d wait, want 1: no instance takes more", c.Waiting.Load())
		}
		a.ahead.Store(true)
		b.ahead.Store(true)
		send("3") // must not overtake request 2
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		for _, id := range []string{"4", "5", "6"} {
			send(id)
		}
		if got := a.handed() + b.handed(); got != 6 || c.Waiting.Load() != 3 {
			t.Errorf("%d were handed over and %d are pending, want 6, two for each instance, and 3, for those ahead have not been begun", got, c.Waiting.Load())
		}
		wg.Wait()
		if c.Waiting.Load() != 0 || c.Executions.Load() != 7 || d.InFlight() != 0 {
			t.Errorf("at the end: %d pending, %d executed, %d in flight", c.Waiting.Load(), c.Executions.Load(), d.InFlight())
		}
	})
}
