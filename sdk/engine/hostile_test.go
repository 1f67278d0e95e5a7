package engine_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// trap is an error whose Error method panics or ends its goroutine.
type trap struct{ exits bool }

func (e trap) Error() string {
	if e.exits {
		runtime.Goexit()
	}
	panic("no text today")
}

// TestErrorsOfAllKinds checks that nil errors, and errors with a broken Error method, an invalid
// code or invalid UTF-8, reach the client. The instance keeps serving.
func TestErrorsOfAllKinds(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string // the client's error; "": a response
		code infer.Code
	}{
		"nil in an error": {(*sdk.Error)(nil), "", 0},
		"panics":          {trap{}, "the backend has failed with an error of type engine_test.trap, a method of which panics", infer.Internal},
		"another's":       {errors.Join(errors.New("a"), sdk.Errorf(sdk.NotFound, "b")), "b", infer.NotFound},
		"of no code":      {&sdk.Error{Code: 99, Message: "odd"}, "odd", infer.Internal},
		"of no UTF-8":     {errors.New("a\xffb"), "a\uFFFDb", infer.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			taken := false
			r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
				q := requests[0]
				if taken || test.want == "" { // the response carries the error
					p, err := q.NewResponse()
					mustNot(t, err)
					_, err = p.Output("OUT", sdk.Int32, []int64{2000})
					mustNot(t, err)
					mustNot(t, p.Send(sdk.SendFinal, test.err))
					mustNot(t, q.Release(sdk.ReleaseAll))
					if test.want != "" {
						return nil
					}
				}
				taken = true
				return test.err
			}}, with(""))
			for range 2 {
				c := ask(t, 1)
				<-r.execute(c)
				switch got := c.wait(1)[0]; {
				case test.want == "" && (got.Err != nil || len(got.Outputs) != 1):
					t.Errorf("got %+v, want an answer", got)
				case test.want != "" && (got.Err == nil || got.Err.Message != test.want || got.Err.Code != test.code):
					t.Errorf("got error %v, want %s %q", got.Err, test.code, test.want)
				}
				c.wantInput(1)
			}
		})
	}
	t.Run("ends the goroutine", func(t *testing.T) {
		first := true
		r := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
			if first {
				first = false
				return trap{exits: true}
			}
			return identity(ctx, requests)
		}}, with(""))
		a, b := ask(t, 1), ask(t, 2)
		<-r.execute(a)
		if got := a.wait(1)[0]; got.Err == nil || !strings.HasSuffix(got.Err.Message, "Execute ended its goroutine") {
			t.Errorf("got %+v", got)
		}
		<-r.execute(b)
		if got := b.wait(1)[0]; got.Err != nil {
			t.Errorf("the next request: got error %v", got.Err)
		}
	})
}

// TestOutputsAndParametersThatCannotBe checks that invalid outputs and parameters are errors of the
// call and leave nothing in the response.
func TestOutputsAndParametersThatCannotBe(t *testing.T) {
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		q := requests[0]
		p, err := q.NewResponse()
		mustNot(t, err)
		for _, shape := range [][]int64{{-1}, {math.MinInt64}, {1 << 62, 4}, {math.MaxInt64, math.MaxInt64}, {0, -1}} {
			if _, err := p.Output("OUT", sdk.Int32, shape); err == nil {
				t.Errorf("an output of shape %v is made", shape)
			}
		}
		_, err = p.Output("OUT", sdk.Int32, make([]int64, 65))
		must(t, err, "output 'OUT' has 65 dimensions, at most 64 are allowed")
		in, _ := q.Input("IN")
		must(t, p.Forward("OUT", make([]int64, 300), in), "output 'OUT' has 300 dimensions, at most 64 are allowed")
		for _, name := range []string{"OUT\x00", "\xff", "", strings.Repeat("x", 1<<20)} {
			if _, err := p.Output(name, sdk.Int32, []int64{1}); err == nil || infer.AsError(err).Code != infer.InvalidArg {
				t.Errorf("output %.10q: got error %v", name, err)
			}
		}
		for n := range 100_000 { // the config has one output
			if _, err := p.Output("OUT", sdk.Int32, []int64{1}); (err == nil) != (n == 0) {
				t.Fatalf("output %d: got error %v", n, err)
			}
		}
		if _, err := p.OutputSize("OUT", sdk.Bytes, []int64{1}, -5); err == nil {
			t.Error("an output of -5 bytes is made")
		}
		must(t, p.SetParameter("a\xff", 1), "is not UTF-8, in its name or its value")
		must(t, p.SetParameter("a", "\xff"), "is not UTF-8, in its name or its value")
		must(t, p.SetParameter("a", math.NaN()), "parameter 'a' is NaN, want a number that JSON has")
		must(t, p.SetParameter("a", float32(math.Inf(-1))), "parameter 'a' is -Inf, want a number that JSON has")
		for _, value := range []any{nil, uint64(1), []byte("x"), struct{}{}, (*string)(nil), func() {}, errors.New("x")} {
			if err := p.SetParameter("a", value); err == nil {
				t.Errorf("a parameter of type %T is set", value)
			}
		}
		mustNot(t, p.SetParameter("nul", "\x00"))
		mustNot(t, p.Send(sdk.SendFinal, nil))
		return q.Release(sdk.ReleaseAll)
	}}, with(""))
	c := ask(t, 1)
	<-r.execute(c)
	if got := c.wait(1)[0]; got.Err != nil || len(got.Outputs) != 1 || len(got.Parameters) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestCallsThatCannotBe checks that invalid BLS requests are rejected and hold no memory. A
// callback that ends its goroutine gets the next response in a new one.
func TestCallsThatCannotBe(t *testing.T) {
	memory := newCounted(t)
	h := &fakeHost{decoupled: map[string]bool{"other": true}, models: map[string]called{"other": func(_ context.Context, r *infer.Request, send infer.Sender) {
		for i := range 3 {
			memory.Retain()
			send(&infer.Response{Model: r.Model, Outputs: []infer.Tensor{{Name: "Y", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte{byte(i)}, Memory: memory}}, Final: i == 2})
		}
	}}}
	var got atomic.Int32
	r := calling(t, h, func(ctx context.Context, s sdk.Server, q *sdk.Request) {
		in, _ := q.Input("IN")
		request := &sdk.InferRequest{Model: "other", From: q, Inputs: []sdk.Tensor{{Name: "X", Of: in}}}
		_, err := s.Infer(nil, request) //nolint:staticcheck // what an author may do
		must(t, err, "without a context, or without a request")
		_, err = s.Infer(ctx, nil)
		must(t, err, "without a context, or without a request")
		must(t, s.InferAsync(ctx, request, nil), "without a function for its responses")
		for _, err := range s.InferStream(ctx, nil) {
			must(t, err, "without a context, or without a request")
		}
		mustNot(t, s.InferAsync(context.Background(), request, func(*sdk.InferResponse) {
			got.Add(1)
			runtime.Goexit()
		}))
	})
	c := ask(t, 1)
	<-r.execute(c)
	c.wait(1)
	h.running.Wait()
	testkit.Eventually(t, patience, func() bool {
		runtime.GC() // frees the callback's arguments
		return got.Load() == 3 && memory.refs.Load() == 1
	})
	c.wantInput(1)
	if n := strings.Count(r.log.String(), "the function of InferAsync ended its goroutine"); n != 3 {
		t.Errorf("the log says %d times that the function ended its goroutine, want 3", n)
	}
}

// wildStrategist panics or ends its goroutine when called.
type wildStrategist struct {
	strategist
	fails func()
	deep  bool // fails in the function that BeginBatch returns
}

type wildAuthor struct {
	author
	model *wildStrategist
}

func (a *wildAuthor) NewModel(*sdk.ModelEnv) (sdk.Model, error) { return a.model, nil }

func (w *wildStrategist) BeginBatch() func(int64) bool {
	if !w.deep {
		w.fails()
	}
	return func(int64) bool {
		w.fails()
		return false
	}
}

// TestStrategiesThatFail checks that a strategy that panics or ends its goroutine includes every
// request. The scheduler calls it with its lock held and must continue.
func TestStrategiesThatFail(t *testing.T) {
	for name, fails := range map[string]func(){"panicked": func() { panic("oh") }, "ended its goroutine": runtime.Goexit} {
		for _, deep := range []bool{false, true} {
			var log testkit.Buffer
			w := &wildStrategist{fails: fails, deep: deep}
			b, err := engine.Open(func(*sdk.BackendEnv) (sdk.Backend, error) { return &wildAuthor{model: w}, nil }, engine.Environment{Name: "b", Own: zerolog.New(&log)})
			if err != nil {
				t.Fatal(err)
			}
			m := b.Model(engine.Version{Name: "m"})
			mustNot(t, m.Start(t.Context(), &kserve.ModelConfig{}, nil))
			s := m.Strategy()
			for range 3 {
				include := s.Begin()
				if deep != (include != nil) || deep && !include(&infer.Request{}) {
					t.Errorf("%s: a request is excluded", name)
				}
			}
			want := "backend 'b', model 'm': BeginBatch " + name
			if deep {
				want = "backend 'b', model 'm': the function of BeginBatch " + name
			}
			if n := strings.Count(log.String(), want); n != 3 {
				t.Errorf("the log says %d times %q, want 3: %s", n, want, log.String())
			}
			m.Close()
			if s.Begin() != nil {
				t.Error("the strategy of a closed model is asked")
			}
			b.Close()
		}
	}
}
