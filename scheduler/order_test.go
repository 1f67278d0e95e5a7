package scheduler_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestWhatIsHeldBackFillsNoWindow checks that responses that are held back release their slots.
// Otherwise a model that sends many responses of its second request first would block before the
// first request's response.
func TestWhatIsHeldBackFillsNoWindow(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
	in := backendtest.NewHeld("0")
	d.Available(in)
	var got []*infer.Response
	for _, id := range []string{"0", "a", "b"} {
		if err := d.Submit(t.Context(), &infer.Request{ID: id}, func(r *infer.Response) { got = append(got, r) }); err != nil {
			t.Fatal(err)
		}
	}
	in.EndAll()
	b := in.Batches[0]
	var first, second scheduler.Counted
	b.Tasks[1].Send(&infer.Response{Slot: &second})
	b.Tasks[0].Send(&infer.Response{Slot: &first})
	if second.Released != 1 || first.Released != 0 {
		t.Errorf("slots were released %d and %d times, want that of the response that waits, once", first.Released, second.Released)
	}
	b.Tasks[0].Send(&infer.Response{Final: true})
	b.Tasks[1].Send(&infer.Response{Final: true})
	if len(got) != 5 || got[3].Slot == nil || got[1].Slot == nil {
		t.Fatalf("got %d responses, want 5, and those that nobody is to wait for with slots", len(got))
	}
	got[3].Release()
	got[1].Release()
	if second.Released != 1 || first.Released != 1 {
		t.Errorf("slots were released %d and %d times, want each once", second.Released, first.Released)
	}
}

// TestCallsKeepNoOrder checks that a BLS request is answered at once, because it could otherwise
// wait for its own caller.
func TestCallsKeepNoOrder(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
	caller, other := backendtest.NewHeld("0"), backendtest.NewInstance("1", 0)
	d.Available(caller)
	var got []string
	var mu sync.Mutex
	ask := func(id string, outer *infer.Caller, done chan struct{}) {
		err := d.Submit(t.Context(), &infer.Request{ID: id, Caller: outer}, func(*infer.Response) {
			mu.Lock()
			got = append(got, id)
			mu.Unlock()
			close(done)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := make(chan struct{}), make(chan struct{})
	ask("r", nil, first)
	d.Available(other)
	ask("call", infer.NewCaller("m", 1, []*infer.Request{caller.Batches[0].Tasks[0].Request}, true), second)
	<-second
	caller.EndAll()
	<-first
	if fmt.Sprint(got) != "[call r]" {
		t.Errorf("answered in the order %v, want the BLS request first", got)
	}
}

// TestOrderIsKeptUnderStorm sends the responses of many requests from many goroutines and checks
// their order.
func TestOrderIsKeptUnderStorm(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &scheduler.Counter{}, Batching: &batching.Rules{MaxSize: 4, PreserveOrder: true}})
	for range 4 {
		d.Available(quickBatches{backendtest.NewInstance("quick", 0)})
	}
	var got []int
	var all sync.WaitGroup
	const requests = 3000
	for i := range requests {
		all.Add(1)
		if err := d.Submit(t.Context(), &infer.Request{BatchSize: 1}, func(*infer.Response) { // needs no lock: called one at a time
			got = append(got, i)
			all.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	for i, n := range got {
		if i != n {
			t.Fatalf("answer %d is that to request %d", i, n)
		}
	}
}

// quickBatches is an instance that responds at once from goroutines.
type quickBatches struct{ *backendtest.Instance }

func (quickBatches) Execute(b *backend.Batch) {
	go func() {
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			go task.Send(&infer.Response{Final: true})
		}
	}()
}
