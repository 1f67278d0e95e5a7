package scheduler

import (
	"context"
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

// TestResponsesLeaveInOrder checks that responses are sent in the order of the requests, in
// whichever order the instances send them.
func TestResponsesLeaveInOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		sends string // "a." is a response of a, "a!" its last one
		want  string
	}{
		{"as they came", "a! b! c!", "a! b! c!"},
		{"the first one last", "c! b! a!", "a! b! c!"},
		{"one in between", "b! a! c!", "a! b! c!"},
		{"streams", "b. a. c! a. b. a! b. b!", "a. a. a! b. b. b. b! c!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewBatcher(BatcherConfig{Observer: &Counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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

// TestOrderOfAClientThatDoesNotRead checks that the first request lets others pass only after its
// client has left a response unread for long, or has disconnected.
func TestOrderOfAClientThatDoesNotRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		reads  bool // the first client reads its responses
		leaves bool // the first client disconnects
		want   string
	}{
		{name: "it reads", reads: true, want: "a. a. a. a! b. b!"},
		{name: "it does not read", want: "a. a. b. b! a. a!"},
		{name: "it has gone", reads: true, leaves: true, want: "a. a. b. b! a. a!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := NewBatcher(BatcherConfig{Observer: &Counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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
				var slots [2]Counted
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
				if slots[1].Released != 2 || c.reads && slots[0].Released != 4 {
					t.Errorf("slots were released %v times", slots)
				}
				if d.order.main.First != nil || d.order.main.Last != nil || len(d.order.aside) != 0 || d.order.watching || d.InFlight() != 0 {
					t.Errorf("somebody still has a turn, %d are in flight", d.InFlight())
				}
			})
		})
	}
}

// TestOrderOfOneClient checks the order after a client's requests have let others pass: its own
// responses stay in order, also those of later requests, and other clients' requests do not wait
// for it.
func TestOrderOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewBatcher(BatcherConfig{Observer: &Counter{}, Batching: &batching.Rules{MaxSize: 8, PreserveOrder: true}})
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
		send := func(id string, final bool) { tasks[id].Send(&infer.Response{Final: final, Slot: &Counted{}}) }
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
