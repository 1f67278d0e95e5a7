package handover_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/handover"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

var silent = zerolog.Nop()

// known is a scheduler's request for the wait graph. These tests call none of its methods.
type known struct{ waitgraph.Waiter }

// bls returns a BLS request at this depth.
func bls(depth int) *infer.Request {
	req := &infer.Request{}
	for range depth {
		req = &infer.Request{Model: "m", Caller: infer.NewCaller("m", 1, []*infer.Request{req}, true)}
	}
	return req
}

// TestEnterGraphNotesBLSRequests checks that EnterGraph enters BLS requests, up to the maximum
// depth, but not the requests of clients.
func TestEnterGraphNotesBLSRequests(t *testing.T) {
	for name, test := range map[string]struct {
		req     *infer.Request
		entered bool
		refused string
	}{
		"a client's request":      {&infer.Request{}, false, ""},
		"a BLS request":           {bls(1), true, ""},
		"as deep as is allowed":   {bls(waitgraph.MaxDepth), true, ""},
		"deeper":                  {bls(waitgraph.MaxDepth + 1), false, "Model 'm' cannot be called: models call each other more than 64 deep"},
		"of an unknown execution": {&infer.Request{Caller: infer.NewCaller("m", 1, nil, true)}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := waitgraph.New(silent, 0)
			r := &handover.Delivery{Log: &silent}
			err := r.EnterGraph(g, known{}, test.req)
			if (err != nil) != (test.refused != "") || err != nil && !strings.HasPrefix(err.Error(), test.refused) {
				t.Errorf("got error %v, want %q", err, test.refused)
			}
			if (r.BLS != nil) != test.entered || (g.Open() == 1) != test.entered {
				t.Errorf("in the graph: %v, with %d requests in all; want %v", r.BLS != nil, g.Open(), test.entered)
			}
			r.LeaveGraph(g)
			if g.Open() != 0 {
				t.Errorf("after LeaveGraph %d requests have open BLS requests", g.Open())
			}
		})
	}
}

// TestTellHandsResponsesUp checks that the graph is updated before the receiver gets a response,
// because the receiver may continue at once.
func TestTellHandsResponsesUp(t *testing.T) {
	g := waitgraph.New(silent, 0)
	var got []string
	r := &handover.Delivery{Log: &silent}
	r.Send = func(response *infer.Response) {
		got = append(got, fmt.Sprintf("final %v, %d sent, %d open", response.Final, r.BLS.Responses(), g.Open()))
	}
	if err := r.EnterGraph(g, known{}, bls(1)); err != nil {
		t.Fatal(err)
	}
	for _, final := range []bool{false, false, true} {
		if last := r.Respond(g, &infer.Response{Final: final}); last != final {
			t.Errorf("the response with Final %v: got last = %v", final, last)
		}
	}
	const want = "final false, 1 sent, 1 open; final false, 2 sent, 1 open; final true, 3 sent, 0 open"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

// TestTellWhenTheSenderPanics checks that a panic of the Sender affects only its own response.
func TestTellWhenTheSenderPanics(t *testing.T) {
	before := testkit.Panics(panics.Request)
	sent := 0
	r := &handover.Delivery{Log: &silent, Send: func(*infer.Response) { sent++; panic("no client today") }}
	if r.Respond(nil, &infer.Response{}) || !r.Respond(nil, &infer.Response{Final: true}) {
		t.Error("the last response is not told from the others")
	}
	if n := testkit.Panics(panics.Request) - before; sent != 2 || n != 2 {
		t.Errorf("%d responses were sent and %d panics counted, want 2 and 2", sent, n)
	}
}

func TestTellAllocatesNothing(t *testing.T) {
	g := waitgraph.New(silent, 0)
	r := &handover.Delivery{Log: &silent, Send: func(*infer.Response) {}}
	if err := r.EnterGraph(g, known{}, bls(1)); err != nil {
		t.Fatal(err)
	}
	response := &infer.Response{}
	if n := testing.AllocsPerRun(100, func() { r.Respond(g, response) }); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// spinning is an instance whose responses are awaited actively.
type spinning struct {
	*backendtest.Instance
	await func(done <-chan struct{})
}

func (s spinning) Capabilities() backend.Capabilities {
	return backend.Capabilities{Awaiter: s}
}

func (s spinning) Await(done <-chan struct{}) { s.await(done) }

// TestAwaitReturnsWithTheLastResponse checks that Await returns after the last response, whether or
// not the context has ended, and that it cancels the request if the context ends first.
func TestAwaitReturnsWithTheLastResponse(t *testing.T) {
	for name, test := range map[string]struct {
		steps string // events while the request waits
		want  string // the calls in order
	}{
		"the response":                     {"dismiss", "entered, awaits"},
		"the client leaves":                {"leave dismiss", "entered, awaits, cancel"},
		"the client leaves, no answer yet": {"leave", "entered, awaits, cancel, still waits"},
		"neither":                          {"", "entered, awaits, still waits"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var said []string
				say := func(word string) { said = append(said, word) } // needs no lock: each step waits until all goroutines block
				r := &handover.Delivery{Log: &silent, Done: make(chan struct{}, 1)}
				in := spinning{await: func(done <-chan struct{}) {
					if done != r.Done {
						t.Error("the instance is given another channel")
					}
					say("awaits")
				}}
				returned := false
				go func() {
					r.Await(ctx, &infer.Request{Entered: func() { say("entered") }}, in, func() { say("cancel") })
					returned = true
				}()
				synctest.Wait()
				for _, step := range strings.Fields(test.steps) {
					switch step {
					case "leave":
						leave()
					case "dismiss":
						r.Finish()
					}
					synctest.Wait()
				}
				if !returned {
					say("still waits")
				}
				if got := strings.Join(said, ", "); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
				if !returned {
					r.Finish()
				}
				synctest.Wait()
				if !returned {
					t.Error("Await has not returned with the last response")
				}
			})
		})
	}
}

// TestAwaitWithoutAnInstance checks that Await of a queued request returns after Finish without
// cancelling it.
func TestAwaitWithoutAnInstance(t *testing.T) {
	r := &handover.Delivery{Log: &silent, Done: make(chan struct{}, 1)}
	r.Finish()
	r.Await(t.Context(), &infer.Request{}, nil, func() { t.Error("a request that has ended is cancelled") })
}

// TestWatchEndsWithTheRequest checks that cancel is called once if the context ends first, and
// never after Finish.
func TestWatchEndsWithTheRequest(t *testing.T) {
	for name, test := range map[string]struct {
		steps    string
		canceled int
		panics   uint64
	}{
		"the client leaves":          {"leave", 1, 0},
		"the request ends":           {"dismiss", 0, 0},
		"the request ends first":     {"dismiss leave", 0, 0},
		"the client leaves first":    {"leave dismiss", 1, 0},
		"cancel panics":              {"break leave dismiss", 1, 1},
		"the client has left before": {"leave watch", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				before := testkit.Panics(panics.Scheduler)
				canceled, breaks := 0, false
				r := &handover.Delivery{Log: &silent}
				watch := func() {
					r.WatchLocked(ctx, func() {
						canceled++
						if breaks {
							panic("no cancelling today")
						}
					})
				}
				if !strings.HasSuffix(test.steps, "watch") {
					watch()
				}
				for _, step := range strings.Fields(test.steps) {
					switch step {
					case "break":
						breaks = true
					case "leave":
						leave()
					case "dismiss":
						r.Finish()
					case "watch":
						watch()
					}
					synctest.Wait()
				}
				if n := testkit.Panics(panics.Scheduler) - before; canceled != test.canceled || n != test.panics {
					t.Errorf("cancelled %d times with %d panics, want %d and %d", canceled, n, test.canceled, test.panics)
				}
			})
		})
	}
}
