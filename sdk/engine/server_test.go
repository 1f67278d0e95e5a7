package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// called is a model of a fakeHost. It runs in its own goroutine.
type called func(ctx context.Context, r *infer.Request, send infer.Sender)

// fakeHost has functions as models. Their goroutines end with the requests.
type fakeHost struct {
	models    map[string]called
	decoupled map[string]bool
	unready   map[string]bool

	running  sync.WaitGroup
	mu       sync.Mutex
	requests []*infer.Request
	said     []string
}

func (h *fakeHost) submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	h.mu.Lock()
	h.requests = append(h.requests, r)
	h.mu.Unlock()
	m := h.models[r.Model]
	if m == nil {
		return infer.Errorf(infer.NotFound, "no model '%s'", r.Model)
	}
	h.running.Go(func() { m(ctx, r, send) })
	return nil
}

func (h *fakeHost) say(format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
	return nil
}

func (h *fakeHost) Load(_ context.Context, model, config string, files map[string][]byte) error {
	return h.say("load %s %s %d", model, config, len(files))
}

func (h *fakeHost) Unload(_ context.Context, model string, dependents bool) error {
	return h.say("unload %s %v", model, dependents)
}

func (h *fakeHost) ModelReady(_ context.Context, model string, version int64) (bool, error) {
	_ = h.say("ready %s %d", model, version)
	return !h.unready[model], nil
}

func (h *fakeHost) Target(model string, _ int64) (backend.Target, error) {
	t := &backendtest.Target{IsDecoupled: h.decoupled[model], Asks: h.unready[model], Run: h.submit}
	if t.Asks {
		t.NotReady = errors.New("not ready")
	}
	return t, nil
}

// request returns the n-th request made.
func (h *fakeHost) request(n int) *infer.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[n]
}

// echo responds with the inputs, in counted memory.
func echo(memory *counted) called {
	return func(_ context.Context, r *infer.Request, send infer.Sender) {
		memory.Retain()
		t := r.Inputs[0]
		t.Memory = memory
		send(&infer.Response{Model: r.Model, ID: r.ID, Outputs: []infer.Tensor{t}, Final: true})
	}
}

// calling starts a backend with a host. execute is called from Execute.
func calling(t *testing.T, h *fakeHost, execute func(ctx context.Context, s sdk.Server, r *sdk.Request)) *fixture {
	var r *fixture
	r = start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
		execute(ctx, r.author().Model.Server, requests[0])
		return identity(ctx, requests)
	}}, with(""), func(r *fixture, _ *engine.Environment) { r.host = h })
	return r
}

func TestModelsCallOthers(t *testing.T) {
	memory := newCounted(t)
	h := &fakeHost{models: map[string]called{"other": echo(memory)}}
	r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
		in, _ := q.Input("IN")
		got, err := s.Infer(ctx, &sdk.InferRequest{
			Model: "other", ID: "own", CorrelationNumber: 3, Flags: sdk.SequenceStart, Inputs: []sdk.Tensor{{Name: "X", Of: in}}, Outputs: []string{"Y"},
		})
		if err != nil {
			t.Error(err)
			return
		}
		if x := got.Output("X"); x == nil || len(x.Data) != 4 || got.Output("Y") != nil || got.ID != "own" || !got.Final {
			t.Errorf("got %+v", got)
		}
		got.Release()
		got.Release()
	})
	c := ask(t, 5)
	<-r.execute(c)
	c.wait(1)
	h.running.Wait()
	c.wantInput(1)
	if n := memory.refs.Load(); n != 1 {
		t.Errorf("the response has %d references left, want none", n-1)
	}
	q := h.request(0)
	caller := q.Caller
	if q.Version != infer.LatestVersion || q.ID != "own" || q.Correlation.Number != 3 || q.Flags != infer.SequenceStart || q.Depth() != 1 || q.Made == 0 {
		t.Errorf("got request %+v", q)
	}
	if caller.Model != "m" || caller.Version != 1 || !caller.Holding || len(caller.Requests) != 1 || caller.Requests[0] != c.task.Request {
		t.Errorf("got caller %+v, want the execution, which waits", caller)
	}
}

// TestCallsThatFail checks the errors that Infer and InferAsync return.
func TestCallsThatFail(t *testing.T) {
	h := &fakeHost{
		models: map[string]called{
			"fails": func(_ context.Context, _ *infer.Request, send infer.Sender) {
				send(infer.ErrorResponse(infer.Errorf(infer.Unavailable, "later")))
			},
			"silent": func(_ context.Context, _ *infer.Request, send infer.Sender) {
				send(&infer.Response{Final: true, Empty: true})
			},
			"streams": nil, "unready": nil,
		},
		decoupled: map[string]bool{"streams": true}, unready: map[string]bool{"unready": true},
	}
	r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
		for model, want := range map[string]string{
			"fails": "later", "silent": "model 'silent' has sent no response", "none": "no model 'none'", "unready": "model 'unready' is not ready",
			"streams": "model 'streams' is decoupled and may send any number of responses: InferAsync and InferStream take them",
		} {
			if _, err := s.Infer(ctx, &sdk.InferRequest{Model: model}); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %q", model, err, want)
			}
		}
		if err := s.InferAsync(ctx, &sdk.InferRequest{Model: "none"}, func(*sdk.InferResponse) { t.Error("a response came") }); err == nil {
			t.Error("InferAsync of no model: got no error")
		}
		if _, err := s.Infer(ctx, &sdk.InferRequest{Model: "fails", ID: "\xff"}); err == nil || !strings.Contains(err.Error(), "not valid UTF-8") {
			t.Errorf("got %v, want that the id is not valid", err)
		}
	})
	c := ask(t, 1)
	<-r.execute(c)
	c.wait(1)
	h.running.Wait()
}

// TestStreams checks that InferStream yields responses in order. Leaving the loop cancels the
// request, and late responses are released.
func TestStreams(t *testing.T) {
	memory := newCounted(t)
	cancelled := make(chan struct{})
	h := &fakeHost{decoupled: map[string]bool{"counts": true, "endless": true}, models: map[string]called{
		"counts": func(_ context.Context, r *infer.Request, send infer.Sender) {
			for i := range byte(5) {
				memory.Retain()
				send(&infer.Response{Outputs: []infer.Tensor{{Name: "N", Data: []byte{i}, Memory: memory}}})
			}
			send(&infer.Response{Final: true, Empty: true})
		},
		"endless": func(ctx context.Context, r *infer.Request, send infer.Sender) {
			for ctx.Err() == nil {
				memory.Retain()
				send(&infer.Response{Outputs: []infer.Tensor{{Name: "N", Memory: memory}}})
			}
			close(cancelled)
			send(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
		},
	}}
	r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
		var got []byte
		for p, err := range s.InferStream(ctx, &sdk.InferRequest{Model: "counts"}) {
			if err != nil {
				t.Error(err)
				return
			}
			got = append(got, p.Outputs[0].Data...)
			p.Release()
		}
		if string(got) != "\x00\x01\x02\x03\x04" {
			t.Errorf("got %v", got)
		}
		for p, err := range s.InferStream(ctx, &sdk.InferRequest{Model: "endless"}) {
			if err != nil {
				t.Error(err)
			}
			p.Release()
			break
		}
		<-cancelled
		for _, err := range s.InferStream(ctx, &sdk.InferRequest{Model: "none"}) {
			if err == nil {
				t.Error("a stream of no model: got no error")
			}
		}
	})
	c := ask(t, 1)
	<-r.execute(c)
	c.wait(1)
	h.running.Wait()
	if n := memory.refs.Load(); n != 1 {
		t.Errorf("responses have %d references left, want none", n-1)
	}
	if !h.request(0).Caller.Holding {
		t.Error("a stream that is read in Execute does not hold its instance")
	}
}

// TestAsynchronousCalls checks that InferAsync does not mark the execution as waiting. A panic of
// the callback is contained, and the response it dropped is released.
func TestAsynchronousCalls(t *testing.T) {
	memory := newCounted(t)
	h := &fakeHost{models: map[string]called{"other": echo(memory)}}
	got := make(chan bool, 2)
	r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
		request := &sdk.InferRequest{Model: "other", From: q, Inputs: []sdk.Tensor{{Name: "X", DataType: sdk.Uint8, Shape: []int64{1}, Data: []byte{1}}}}
		mustNot(t, s.InferAsync(context.Background(), request, func(p *sdk.InferResponse) {
			got <- p.Final
			panic("oh")
		}))
		mustNot(t, s.InferAsync(context.Background(), request, func(p *sdk.InferResponse) { p.Release(); got <- p.Final }))
	})
	c := ask(t, 1)
	<-r.execute(c)
	c.wait(1)
	for range 2 {
		if !<-got {
			t.Error("the only response is not final")
		}
	}
	if caller := h.request(0).Caller; caller.Holding || len(caller.Requests) != 1 || caller.Requests[0] != c.task.Request {
		t.Errorf("got caller %+v, want the request that it is from, and that nothing waits", caller)
	}
	testkit.Eventually(t, patience, func() bool {
		runtime.GC()
		return memory.refs.Load() == 1 && strings.Contains(r.log.String(), "the function of InferAsync panicked")
	})
	h.running.Wait()
}

// TestCallsAreCancelled checks that a BLS request is cancelled with its From request, or with all
// clients of the batch.
func TestCallsAreCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		make   func(ctx context.Context, q *sdk.Request) (context.Context, *sdk.InferRequest)
		cancel func(r *fixture, a, b *client)
	}{
		"with the request": {
			func(_ context.Context, q *sdk.Request) (context.Context, *sdk.InferRequest) {
				return context.Background(), &sdk.InferRequest{Model: "waits", From: q}
			},
			func(_ *fixture, a, _ *client) { a.cancel() },
		},
		"with the batch": {
			func(ctx context.Context, _ *sdk.Request) (context.Context, *sdk.InferRequest) {
				return ctx, &sdk.InferRequest{Model: "waits"}
			},
			func(r *fixture, a, b *client) {
				a.cancel()
				r.instance.Cancel(a.task) // the other request still waits
				b.cancel()
				r.instance.Cancel(b.task)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			waiting := make(chan struct{})
			h := &fakeHost{models: map[string]called{"waits": func(ctx context.Context, _ *infer.Request, send infer.Sender) {
				close(waiting)
				<-ctx.Done()
				send(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
			}}}
			var outcome error
			r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
				ctx, request := test.make(ctx, q)
				_, outcome = s.Infer(ctx, request)
			})
			a, b := ask(t, 1), ask(t, 2)
			done := r.execute(a, b)
			<-waiting
			test.cancel(r, a, b)
			<-done
			if outcome == nil || infer.AsError(outcome).Code != infer.Cancelled {
				t.Errorf("got %v, want Cancelled", outcome)
			}
			h.running.Wait()
		})
	}
	t.Run("with the context", func(t *testing.T) {
		returned := make(chan struct{})
		h := &fakeHost{models: map[string]called{"waits": func(ctx context.Context, _ *infer.Request, send infer.Sender) {
			<-ctx.Done()
			<-returned
			send(&infer.Response{Final: true}) // too late
		}}}
		r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := s.Infer(ctx, &sdk.InferRequest{Model: "waits"}); err == nil {
				t.Error("got no error")
			}
			close(returned)
		})
		<-r.execute(ask(t, 1))
		h.running.Wait()
	})
}

// TestHostCalls checks that host calls reach the host.
func TestHostCalls(t *testing.T) {
	h := &fakeHost{decoupled: map[string]bool{"d": true}}
	r := calling(t, h, func(ctx context.Context, s sdk.Server, _ *sdk.Request) {
		mustNot(t, s.Load(ctx, "a", "{}", map[string][]byte{"f": nil}))
		mustNot(t, s.Unload(ctx, "a", true))
		if ready, err := s.ModelReady(ctx, "a", 0); !ready || err != nil {
			t.Errorf("ModelReady: got %v, %v", ready, err)
		}
		if d, err := s.Decoupled("d", 0); !d || err != nil {
			t.Errorf("Decoupled: got %v, %v", d, err)
		}
	})
	<-r.execute(ask(t, 1))
	if got := fmt.Sprint(h.said); got != "[load a {} 1 unload a true ready a -1]" {
		t.Errorf("the host heard %s", got)
	}
	alone := start(t, &author{execute: identity}, with(""))
	s := alone.author().Model.Server
	if _, err := s.Infer(t.Context(), &sdk.InferRequest{Model: "x"}); err == nil {
		t.Error("a call without a host: got no error")
	}
	if err := s.Load(t.Context(), "x", "", nil); err == nil {
		t.Error("a load without a host: got no error")
	}
}

var _ backend.Host = (*fakeHost)(nil)
