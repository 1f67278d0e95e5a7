package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// pipe is an instance that executes one batch and takes one ahead, which can be withdrawn. A
// request's timeout is its execution time in µs.
type pipe struct {
	name string
	// late: Withdraw does not give the batch back at once. skip: the batch comes back when its turn
	// comes.
	late, skip bool

	mu      sync.Mutex
	batches []*backend.Batch
	asked   *backend.Batch // if late: the batch to skip
	// timeline, if not nil, records its batches.
	timeline *timeline
	order    []string // ids of the executed requests
	// handed, if not nil, is called before Execute returns.
	handed func(id string)
}

func (p *pipe) tell(does string, b *backend.Batch) {
	if p.timeline != nil {
		p.timeline.tell("%s %s %s", p.name, does, ids(b))
	}
}

func (p *pipe) Name() string                { return p.name }
func (p *pipe) Ready(context.Context) error { return nil }

func (p *pipe) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pipeliner: p}
}

func (p *pipe) Ahead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.batches) < 2
}

func (p *pipe) Execute(b *backend.Batch) {
	if p.handed != nil {
		defer p.handed(b.Tasks[0].Request.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.batches) == 2 {
		panic("a third batch was handed over")
	}
	p.batches = append(p.batches, b)
	if len(p.batches) == 1 {
		p.beginLocked()
	} else {
		p.tell("takes ahead", b)
	}
}

func (p *pipe) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.batches) == 0
}

func (p *pipe) beginLocked() {
	b := p.batches[0]
	p.order = append(p.order, b.Tasks[0].Request.ID)
	p.tell("executes", b)
	time.AfterFunc(time.Duration(b.Tasks[0].Request.TimeoutMicros)*time.Microsecond, func() {
		p.pop()
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true})
		}
	})
}

// pop removes the executed batch, and begins or skips the next one.
func (p *pipe) pop() {
	p.mu.Lock()
	p.batches = p.batches[1:]
	var skipped *backend.Batch
	if len(p.batches) > 0 && p.batches[0] == p.asked && p.skip {
		skipped = p.asked
		p.batches = nil
	}
	if len(p.batches) > 0 {
		p.beginLocked()
	}
	p.asked = nil
	p.mu.Unlock()
	if skipped != nil {
		p.tell("skips", skipped)
		time.AfterFunc(time.Millisecond, func() { skipped.Done(skipped, backend.Report{Refused: true, Withdrawn: true}) })
	}
}

func (p *pipe) Withdraw() {
	p.mu.Lock()
	if len(p.batches) < 2 {
		p.mu.Unlock()
		return
	}
	b := p.batches[1]
	if p.late {
		p.asked = b
		p.tell("is asked for", b)
		p.mu.Unlock()
		return
	}
	p.batches = p.batches[:1]
	p.mu.Unlock()
	p.tell("returns", b)
	b.Done(b, backend.Report{Refused: true, Withdrawn: true})
}

// wanted is the outcome of a request.
type wanted struct {
	took time.Duration
	err  error
}

// sender returns a function that sends a request with a given execution time.
func sender(t *testing.T, d *scheduler.Batcher, wg *sync.WaitGroup) func(ctx context.Context, id string, lasts time.Duration) *wanted {
	return func(ctx context.Context, id string, lasts time.Duration) *wanted {
		w := &wanted{}
		wg.Go(func() {
			begin := time.Now()
			answers := 0
			err := d.Infer(ctx, &infer.Request{ID: id, TimeoutMicros: uint64(lasts / time.Microsecond)}, func(r *infer.Response) {
				answers++
				if r.Err != nil {
					w.err = r.Err
				}
			})
			if err != nil || answers != 1 {
				t.Errorf("request %s: %d answers, error %v", id, answers, err)
			}
			w.took = time.Since(begin)
		})
		synctest.Wait()
		return w
	}
}

// TestBatchesOnTheirWayAheadAreWithdrawn checks that a request is withdrawn if an instance
// becomes available while the request is being given ahead, when it cannot be withdrawn yet.
func TestBatchesOnTheirWayAheadAreWithdrawn(t *testing.T) {
	for _, id := range []string{"second", "third"} { // given directly by Infer; given from the queue
		synctest.Test(t, func(t *testing.T) {
			var c counter
			d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
			a, b := &pipe{name: "a"}, &pipe{name: "b"}
			a.handed = func(handed string) {
				if handed == id {
					d.Available(b)
				}
			}
			var wg sync.WaitGroup
			send := sender(t, d, &wg)
			d.Available(a)
			send(t.Context(), "first", time.Second)
			send(t.Context(), "second", time.Hour)
			if id == "third" {
				send(t.Context(), "third", time.Second)
			}
			wg.Wait()
			if got := fmt.Sprint(b.order); got != "["+id+"]" {
				t.Errorf("the instance that came up got %s, want [%s]", got, id)
			}
		})
	}
}

// TestRequestsOfDisconnectedClientsAreNotExecuted checks that a request whose client has left is
// not executed, neither after it comes back from an instance nor from the queue.
func TestRequestsOfDisconnectedClientsAreNotExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counter
		d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
		a := backendtest.NewHeld("a")
		var wg sync.WaitGroup
		send := sender(t, d, &wg)
		d.Available(a)
		send(t.Context(), "first", 0)
		ctx, cancel := context.WithCancel(t.Context())
		second := send(ctx, "second", 0)
		cancel()
		synctest.Wait() // the client has left; the instance still has the request
		d.Lost(a, false)
		b := backendtest.NewInstance("b", time.Second)
		d.Available(b)
		back := a.Batches[1]
		back.Done(back, backend.Report{Refused: true})
		synctest.Wait()
		if second.err == nil || c.Failures.Load() != 1 {
			t.Errorf("a request that came back for nobody: error %v, %d failed, want a cancellation", second.err, c.Failures.Load())
		}
		first := a.Batches[0]
		first.Done(first, backend.Report{Refused: true})
		wg.Wait()
		if got := fmt.Sprint(b.Executed()); got != "[first]" {
			t.Errorf("executed were %s, want [first]", got)
		}
		if c.Waiting.Load() != 0 || d.InFlight() != 0 {
			t.Errorf("at the end: %d pending, %d in flight", c.Waiting.Load(), d.InFlight())
		}

		// In the queue: the context has ended, but the goroutine that watches it has not noticed yet.
		send(t.Context(), "third", 0)
		unnoticed, answers := &unnoticedContext{Context: t.Context()}, 0
		gone := d.Prepare(unnoticed, &infer.Request{ID: "gone"}, func(r *infer.Response) {
			answers++
			if r.Err == nil {
				t.Error("a request that waits for nobody was executed")
			}
		}, scheduler.Timing{})
		if err := gone.Enter(); err != nil {
			t.Fatal(err)
		}
		unnoticed.ended.Store(true)
		wg.Wait()
		gone.Cancel() // now the goroutine notices
		if answers != 1 || c.Waiting.Load() != 0 || d.InFlight() != 0 || c.Failures.Load() != 2 {
			t.Errorf("after all: %d answers, %d pending, %d in flight, %d failed, want 1, 0, 0, 2",
				answers, c.Waiting.Load(), d.InFlight(), c.Failures.Load())
		}
	})
}

// unnoticedContext ends without notifying anyone, as if the goroutine that watches it had not run
// yet.
type unnoticedContext struct {
	context.Context
	ended atomic.Bool
}

// Err implements context.Context.
func (c *unnoticedContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// TestBatcherIsWorkConserving sends many long and short requests, of which some are cancelled,
// while instances become available. It checks that at no moment a request waits or is ahead while
// an instance is idle.
func TestBatcherIsWorkConserving(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var c counter
			d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &c})
			instances := make([]*pipe, 2+random.IntN(3))
			for i := range instances {
				instances[i] = &pipe{name: fmt.Sprint(i)}
			}
			var wg sync.WaitGroup
			var answered atomic.Int64
			const requests = 300
			for i := range requests {
				if n := i / 10; i%10 == 0 && n < len(instances) {
					d.Available(instances[n])
				}
				lasts := time.Duration(random.IntN(5)) * time.Millisecond
				if random.IntN(20) == 0 {
					lasts = time.Second
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(5) == 0 {
					time.AfterFunc(time.Duration(random.IntN(10))*time.Millisecond, cancel)
				}
				wg.Go(func() {
					defer cancel()
					err := d.Infer(ctx, &infer.Request{ID: fmt.Sprint(i), TimeoutMicros: uint64(lasts / time.Microsecond)},
						func(*infer.Response) { answered.Add(1) })
					if err != nil {
						t.Errorf("request %d: %v", i, err)
					}
				})
				synctest.Wait()
				for _, p := range instances[:min(i/10+1, len(instances))] {
					if n := c.Waiting.Load(); n > 0 && p.idle() {
						t.Errorf("seed %d, request %d: instance %s is idle, and %d requests wait or lie ahead", seed, i, p.name, n)
					}
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
			}
			wg.Wait()
			executed := 0
			seen := make(map[string]bool)
			for _, p := range instances {
				executed += len(p.order)
				for _, id := range p.order {
					if seen[id] {
						t.Errorf("request %s was executed twice", id)
					}
					seen[id] = true
				}
			}
			if answered.Load() != requests || executed+int(c.Failures.Load()) != requests || c.Waiting.Load() != 0 || d.InFlight() != 0 {
				t.Errorf("seed %d: %d answers, %d executed, %d failed, %d pending, %d in flight", seed,
					answered.Load(), executed, c.Failures.Load(), c.Waiting.Load(), d.InFlight())
			}
		})
	}
}
