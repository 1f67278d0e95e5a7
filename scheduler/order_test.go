package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit/transcript"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// TestOrderTranscripts plays testdata/order. Clients send requests ("ask a x": request a of client
// x) to a batcher that preserves order, each to an instance of its own, whose model sends responses
// ("send a. b!"): "!" marks a last one. A client leaves its responses unread unless it "reads". An
// effect lists the responses that leave.
func TestOrderTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/order/*.txt", func(t *testing.T) func(string) []string {
		o := &ordered{t: t, reads: map[string]bool{}, clients: map[string]context.Context{}, leave: map[string]func(){}, tasks: map[string]*backend.Task{}}
		o.Batcher = scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
		t.Cleanup(o.end)
		return o.step
	})
}

func mark(final bool) string {
	if final {
		return "!"
	}
	return "."
}

// ordered is a batcher that preserves order, with the responses that have left it.
type ordered struct {
	*scheduler.Batcher
	t       *testing.T
	reads   map[string]bool
	clients map[string]context.Context
	leave   map[string]func()
	tasks   map[string]*backend.Task
	slots   []*slotOf

	mu  sync.Mutex
	got []string
}

// slotOf is the slot of a response.
type slotOf struct {
	counted
	response, client string
}

func (o *ordered) step(line string) []string {
	f := strings.Fields(line)
	switch f[0] {
	case "reads":
		o.reads[f[1]] = true
	case "ask":
		o.ask(f[1], f[2])
	case "send":
		for _, response := range f[1:] {
			id, final := response[:1], response[1:] == "!"
			s := &slotOf{response: response, client: o.tasks[id].Request.Model}
			o.slots = append(o.slots, s)
			o.tasks[id].Send(&infer.Response{Final: final, Slot: s})
		}
	case "leave":
		o.leave[f[1]]()
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			o.t.Fatal(err)
		}
		time.Sleep(d)
	default:
		o.t.Fatalf("unknown step %q", line)
	}
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.got) == 0 {
		return nil
	}
	effect := strings.Join(o.got, " ")
	o.got = nil
	return []string{effect}
}

func (o *ordered) ask(id, client string) {
	if o.clients[client] == nil {
		o.clients[client], o.leave[client] = context.WithCancel(o.t.Context())
	}
	in := backendtest.NewHeld(id)
	o.Available(in)
	err := o.Submit(o.clients[client], &infer.Request{ID: id, Model: client}, func(r *infer.Response) {
		o.mu.Lock()
		o.got = append(o.got, id+mark(r.Final))
		o.mu.Unlock()
		if o.reads[client] {
			r.Release()
		}
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.tasks[id] = in.Batches[0].Tasks[0]
}

// end checks that nothing is in flight and that slots are released once, at least those of clients
// that read.
func (o *ordered) end() {
	if n := o.InFlight(); n != 0 {
		o.t.Errorf("%d are in flight at the end", n)
	}
	for _, s := range o.slots {
		if s.Released > 1 || s.Released == 0 && o.reads[s.client] {
			o.t.Errorf("the slot of response %s was released %d times", s.response, s.Released)
		}
	}
	for _, leave := range o.leave {
		leave()
	}
}

// TestHeldResponsesReleaseTheirSlots checks that responses that are held back release their slots.
// Otherwise a model that sends many responses of its second request first would block before the
// first request's response.
func TestHeldResponsesReleaseTheirSlots(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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
	var first, second counted
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

// TestBLSRequestsAreExemptFromTheOrder checks that a BLS request is answered at once, because it
// could otherwise wait for its own caller.
func TestBLSRequestsAreExemptFromTheOrder(t *testing.T) {
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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
	d := scheduler.NewBatcher(scheduler.BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 4, PreserveOrder: true}})
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
