package scheduler

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
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// TestResponsesLeaveInOrder has instances answer in an order of their own, some of
// them more than once.
func TestResponsesLeaveInOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		sends string // "a.": a response of a, "a!": its last one
		want  string
	}{
		{"as they came", "a! b! c!", "a! b! c!"},
		{"the first one last", "c! b! a!", "a! b! c!"},
		{"one in between", "b! a! c!", "a! b! c!"},
		{"streams", "b. a. c! a. b. a! b. b!", "a. a. a! b. b. b. b! c!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
			in := backendtest.NewHeld("0")
			d.Available(in)
			d.Available(backendtest.NewHeld("1"))
			d.Available(backendtest.NewHeld("2"))
			tasks := map[string]*backend.Task{}
			var got []string
			for _, id := range []string{"a", "b", "c"} {
				err := d.Submit(t.Context(), &infer.Request{ID: id}, func(r *infer.Response) { got = append(got, id+mark(r.Final)) })
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, on := range d.instances.MembersLocked() {
				held, _ := on.Instance().(*backendtest.Held)
				for _, b := range held.Batches {
					tasks[b.Tasks[0].Request.ID] = b.Tasks[0]
				}
			}
			for _, send := range strings.Fields(c.sends) {
				tasks[send[:1]].Send(&infer.Response{Final: send[1:] == "!"})
			}
			if order := strings.Join(got, " "); order != c.want {
				t.Errorf("got %s, want %s", order, c.want)
			}
			if d.order.main.First != nil || d.order.main.Last != nil || len(d.order.aside) != 0 || d.InFlight() != 0 {
				t.Errorf("somebody still has a turn, %d are in flight", d.InFlight())
			}
		})
	}
}

func mark(final bool) string {
	if final {
		return "!"
	}
	return "."
}

// counted counts its releases.
type counted struct{ released int }

func (*counted) Retain()    {}
func (s *counted) Release() { s.released++ }

// TestWhatIsHeldBackFillsNoWindow: a model that sends many responses of its
// second request before the first of its first must not wait for the first.
func TestWhatIsHeldBackFillsNoWindow(t *testing.T) {
	d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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
	if second.released != 1 || first.released != 0 {
		t.Errorf("slots were released %d and %d times, want that of the response that waits, once", first.released, second.released)
	}
	b.Tasks[0].Send(&infer.Response{Final: true})
	b.Tasks[1].Send(&infer.Response{Final: true})
	if len(got) != 5 || got[3].Slot == nil || got[1].Slot == nil {
		t.Fatalf("got %d responses, want 5, and those that nobody is to wait for with slots", len(got))
	}
	got[3].Release()
	got[1].Release()
	if second.released != 1 || first.released != 1 {
		t.Errorf("slots were released %d and %d times, want each once", second.released, first.released)
	}
}

// TestOrderOfAClientThatDoesNotRead: the first steps aside when its client has
// left a response unread for long, or has gone, and only then.
func TestOrderOfAClientThatDoesNotRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		reads  bool // the first client reads its responses
		leaves bool // it goes
		want   string
	}{
		{name: "it reads", reads: true, want: "a. a. a. a! b. b!"},
		{name: "it does not read", want: "a. a. b. b! a. a!"},
		{name: "it has gone", reads: true, leaves: true, want: "a. a. b. b! a. a!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
				tasks := map[string]*backend.Task{}
				leaving, leave := context.WithCancel(t.Context())
				defer leave()
				var mu sync.Mutex
				var got []string
				sofar := func() string {
					mu.Lock()
					defer mu.Unlock()
					return strings.Join(got, " ")
				}
				for _, id := range []string{"a", "b"} {
					in := backendtest.NewHeld(id)
					d.Available(in)
					ctx := t.Context()
					if id == "a" {
						ctx = leaving
					}
					err := d.Submit(ctx, &infer.Request{ID: id}, func(r *infer.Response) {
						mu.Lock()
						got = append(got, id+mark(r.Final))
						mu.Unlock()
						if id == "b" || c.reads {
							r.Release()
						}
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, on := range d.instances.MembersLocked() {
					held, _ := on.Instance().(*backendtest.Held)
					for _, b := range held.Batches {
						tasks[b.Tasks[0].Request.ID] = b.Tasks[0]
					}
				}
				var slots [2]counted
				send := func(id string, final bool) { tasks[id].Send(&infer.Response{Final: final, Slot: &slots[id[0]-'a']}) }
				send("a", false)
				send("b", false)
				send("a", false)
				if c.leaves {
					leave()
				}
				time.Sleep(waitgraph.Patience - 1)
				synctest.Wait()
				if order := sofar(); order != "a. a." {
					t.Errorf("after a short time: %s", order)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				send("b", true)
				send("a", false)
				send("a", true)
				if order := sofar(); order != c.want {
					t.Errorf("got %s, want %s", order, c.want)
				}
				if slots[1].released != 2 || c.reads && slots[0].released != 4 {
					t.Errorf("slots were released %v times", slots)
				}
				if d.order.main.First != nil || d.order.main.Last != nil || len(d.order.aside) != 0 || d.order.watching || d.InFlight() != 0 {
					t.Errorf("somebody still has a turn, %d are in flight", d.InFlight())
				}
			})
		})
	}
}

// TestOrderOfOneClient that has stepped aside: its own responses stay in order,
// those of requests that come later too, and alone keep nobody waiting for the
// first to be read.
func TestOrderOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
		lazy, leave := context.WithCancel(t.Context())
		defer leave()
		tasks := map[string]*backend.Task{}
		var got []string
		ask := func(ctx context.Context, id string) {
			in := backendtest.NewHeld(id)
			d.Available(in)
			if err := d.Submit(ctx, &infer.Request{ID: id}, func(r *infer.Response) { got = append(got, id+mark(r.Final)) }); err != nil {
				t.Fatal(err)
			}
			tasks[id] = in.Batches[0].Tasks[0]
		}
		send := func(id string, final bool) { tasks[id].Send(&infer.Response{Final: final, Slot: &counted{}}) }
		want := func(when, want string) {
			t.Helper()
			time.Sleep(2 * waitgraph.Patience)
			synctest.Wait()
			if sofar := strings.Join(got, " "); sofar != want {
				t.Errorf("%s: got %s, want %s", when, sofar, want)
			}
		}
		ask(lazy, "a")
		ask(lazy, "b")
		send("a", false)
		send("b", false)
		want("two of one client", "a.")
		ask(t.Context(), "o")
		ask(lazy, "c")
		ask(t.Context(), "p")
		send("c", true)
		send("p", true)
		send("o", false)
		want("others wait", "a. o.")
		ask(lazy, "d")
		send("d", true)
		send("b", true)
		send("o", true)
		want("the others go on", "a. o. o! p!")
		send("a", true)
		want("at the end", "a. o. o! p! a! b. b! c! d!")
		ask(lazy, "e")
		ask(t.Context(), "q")
		send("q", true)
		send("e", true)
		want("all is in one row again", "a. o. o! p! a! b. b! c! d! e! q!")
		if d.order.main.First != nil || d.order.main.Last != nil || len(d.order.aside) != 0 || d.order.watching || d.InFlight() != 0 {
			t.Errorf("somebody still has a turn, %d are in flight", d.InFlight())
		}
	})
}

// TestCallsKeepNoOrder: a BLS request is answered at once, as its
// caller may be the one that it would wait for.
func TestCallsKeepNoOrder(t *testing.T) {
	d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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

// TestOrderIsKeptUnderStorm sends the responses of many requests from many goroutines.
func TestOrderIsKeptUnderStorm(t *testing.T) {
	d := NewBatcher(BatcherConfig{Observer: &counter{}, Batching: &batching.Rules{MaxSize: 4, PreserveOrder: true}})
	for range 4 {
		d.Available(quickBatches{backendtest.NewInstance("quick", 0)})
	}
	var got []int
	var all sync.WaitGroup
	const requests = 3000
	for i := range requests {
		all.Add(1)
		if err := d.Submit(t.Context(), &infer.Request{BatchSize: 1}, func(*infer.Response) { // one at a time
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

// quickBatches is an instance that answers batches at once, in a goroutine.
type quickBatches struct{ *backendtest.Instance }

func (quickBatches) Execute(b *backend.Batch) {
	go func() {
		b.Done(b, backend.Report{Executed: true})
		for _, task := range b.Tasks {
			go task.Send(&infer.Response{Final: true})
		}
	}()
}
