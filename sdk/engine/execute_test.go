package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// ordered checks that the times of a report are after begun and in order.
func ordered(t *testing.T, r *backend.Report, begun int64) {
	t.Helper()
	if !r.Executed || r.Refused || r.Start < begun || r.ComputeStart < r.Start || r.ComputeEnd < r.ComputeStart || r.End < r.ComputeEnd {
		t.Errorf("got report %+v, want an execution with its times in order", *r)
	}
}

func TestExecuteAnswersABatch(t *testing.T) {
	r := start(t, &author{execute: identity}, with(`"max_batch_size":4`))
	begun := backend.Now()
	a, b := ask(t, 1, 2), ask(t, 3)
	report := <-r.execute(a, b)
	ordered(t, &report, begun)
	if report.Err != nil || report.Failed != nil || report.GPU != 0 {
		t.Errorf("got report %+v, want no failure and no GPU", report)
	}
	for c, want := range map[*client][]byte{a: {1, 0, 0, 0, 2, 0, 0, 0}, b: {3, 0, 0, 0}} {
		got := c.wait(1)[0]
		if !got.Final || got.Err != nil || len(got.Outputs) != 1 || !slices.Equal(got.Outputs[0].Data, want) || got.Outputs[0].Name != "OUT" {
			t.Errorf("got response %+v, want OUT with %v", got, want)
		}
		c.wantInput(1)
	}
}

// TestDoneComesBeforeTheAnswersOfExecute checks that Done is called before responses are sent, so
// that a client with a response sees up-to-date statistics. In a plugin, responses come first.
func TestDoneComesBeforeTheAnswersOfExecute(t *testing.T) {
	for name, first := range map[string]bool{"done": false, "answers": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &author{execute: identity}, with(""), func(_ *fixture, env *engine.Environment) { env.AnswersFirst = first })
			var order []string // written by the instance's goroutine
			c := ask(t, 1)
			send := c.task.Send
			c.task.Send = func(p *infer.Response) { order = append(order, "answer"); send(p) }
			done := make(chan struct{})
			r.instance.Execute(&backend.Batch{Tasks: []*backend.Task{c.task}, Done: func(*backend.Batch, backend.Report) {
				order = append(order, "done")
				close(done)
			}})
			<-done
			c.wait(1)
			want := []string{"done", "answer"}
			if first {
				slices.Reverse(want)
			}
			if err := r.instance.Close(t.Context()); err != nil || !slices.Equal(order, want) {
				t.Errorf("got %v (error %v), want %v", order, err, want)
			}
		})
	}
}

// TestTheNextBatchMayComeInsideDone executes a thousand batches from within Done and checks that
// the stack does not grow.
func TestTheNextBatchMayComeInsideDone(t *testing.T) {
	depth := func() int { return runtime.Callers(0, make([]uintptr, 1000)) }
	var deepest atomic.Int64
	r := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
		deepest.Store(max(deepest.Load(), int64(depth())))
		return identity(ctx, requests)
	}}, with(""))
	c := ask(t, 1)
	c.keep = true
	left, done := 1000, make(chan struct{})
	c.task.Send = func(*infer.Response) {}
	b := &backend.Batch{Tasks: []*backend.Task{c.task}}
	b.Done = func(b *backend.Batch, _ backend.Report) {
		if left--; left == 0 {
			close(done)
			return
		}
		r.instance.Execute(b)
	}
	r.instance.Execute(b)
	<-done
	if n := deepest.Load(); n > 50 {
		t.Errorf("the stack was %d calls deep, want it not to grow", n)
	}
}

// TestExecuteThatFailsHasTakenNothing checks that if Execute fails, all requests get its error and
// code, and are released.
func TestExecuteThatFailsHasTakenNothing(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code infer.Code
	}{
		"with a code":    {sdk.Errorf(sdk.Unavailable, "not now"), infer.Unavailable},
		"without a code": {errors.New("not now"), infer.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &author{execute: func(context.Context, []*sdk.Request) error { return test.err }}, with(""))
			a, b := ask(t, 1), ask(t, 2)
			report := <-r.execute(a, b)
			if report.Err == nil || report.Err.Error() != "not now" || report.Failed != nil {
				t.Errorf("got report %+v, want the error, and no failures beside", report)
			}
			for _, c := range []*client{a, b} {
				if got := c.wait(1)[0]; !got.Final || got.Err == nil || got.Err.Code != test.code || got.Err.Message != "not now" {
					t.Errorf("got %+v, want the error with code %s", got, test.code)
				}
				c.wantInput(1)
			}
			if text := r.log.String(); text != "" {
				t.Errorf("got the log %s, want none", text)
			}
		})
	}
}

// TestFaultsAreNamedAndContained breaks each ownership rule. The client gets one final response,
// the log names the fault, and nothing leaks.
func TestFaultsAreNamedAndContained(t *testing.T) {
	release := func(r *sdk.Request) error { return r.Release(sdk.ReleaseAll) }
	var statistics sdk.Statistics // of the instance that executes
	for name, test := range map[string]struct {
		execute   func(t *testing.T, r *sdk.Request) error
		decoupled bool
		want      string // the client's error, or "ok"
		fault     string // in the log
	}{
		"sent twice": {execute: func(t *testing.T, r *sdk.Request) error {
			p, _ := r.NewResponse()
			mustNot(t, p.Send(sdk.SendFinal, nil))
			must(t, p.Send(sdk.SendFinal, nil), "a response was sent that had been sent, or discarded, before")
			return release(r)
		}, want: "ok", fault: "a response was sent that had been sent"},
		"two final responses": {execute: func(t *testing.T, r *sdk.Request) error {
			p, _ := r.NewResponse()
			q, _ := r.NewResponse()
			mustNot(t, p.Send(sdk.SendFinal, nil))
			must(t, q.Send(sdk.SendFinal, nil), "a response was sent after the final one")
			return release(r)
		}, want: "ok", fault: "a response was sent after the final one; it is dropped"},
		"a flag after the final response": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, answer(r, sdk.SendFinal))
			must(t, r.Factory().SendFlags(sdk.SendFinal), "a response was sent after the final one")
			return release(r)
		}, decoupled: true, want: "ok", fault: "a response was sent after the final one; it is dropped"},
		"two responses of a model that is not decoupled": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, answer(r, 0))
			must(t, answer(r, 0), "a second response was sent, though the model is not decoupled")
			mustNot(t, r.Factory().SendFlags(sdk.SendFinal))
			return release(r)
		}, want: "ok", fault: "a second response was sent, though the model is not decoupled; it is dropped"},
		"released twice": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, answer(r, sdk.SendFinal))
			mustNot(t, release(r))
			must(t, release(r), "the request was released twice")
			return nil
		}, want: "ok", fault: "the request was released twice"},
		"an error after an answer": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, answer(r, sdk.SendFinal))
			return errors.New("too late")
		}, want: "ok", fault: "Execute has returned an error, though it had answered or released the request"},
		"an error after a release": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, release(r))
			return errors.New("too late")
		}, want: "too late", fault: "Execute has returned an error, though it had answered or released the request"},
		"rescheduled without an iterative sequence": {execute: func(t *testing.T, r *sdk.Request) error {
			must(t, r.Release(sdk.ReleaseReschedule), "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.")
			mustNot(t, answer(r, sdk.SendFinal))
			return release(r)
		}, want: "ok"},
		"forwarded after the release": {execute: func(t *testing.T, r *sdk.Request) error {
			in, _ := r.Input("IN")
			p, _ := r.NewResponse()
			mustNot(t, p.Forward("OUT", nil, in))
			mustNot(t, release(r))
			return p.Send(sdk.SendFinal, nil)
		}, want: "[request id: r] a response was sent with the bytes of an input whose request had been released", fault: "whose request had been released"},
		"a closed factory": {execute: func(t *testing.T, r *sdk.Request) error {
			f := r.Factory()
			f.Close()
			must(t, f.SendFlags(sdk.SendFinal), "a response factory was used after it had been closed")
			_, err := f.NewResponse()
			must(t, err, "a response factory was used after it had been closed")
			mustNot(t, answer(r, sdk.SendFinal))
			return release(r)
		}, want: "ok", fault: "a response factory was used after it had been closed"},
		"statistics after the release": {execute: func(t *testing.T, r *sdk.Request) error {
			mustNot(t, answer(r, sdk.SendFinal))
			mustNot(t, release(r))
			now := sdk.Now()
			must(t, statistics.Request(r, true, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: now, ExecEnd: now}), "statistics were reported after the release of the request")
			return nil
		}, want: "ok", fault: "statistics were reported after the release of the request"},
	} {
		t.Run(name, func(t *testing.T) {
			config := with("")
			if test.decoupled {
				config = with(`"model_transaction_policy":{"decoupled":true}`)
			}
			r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error { return test.execute(t, requests[0]) }}, config)
			statistics = r.author().Statistics
			c := ask(t, 1)
			<-r.execute(c)
			c.wantInput(1)
			testkit.Eventually(t, patience, func() bool { return c.final() != nil })
			got, last := "ok", c.final()
			if last.Err != nil {
				got = last.Err.Message
			}
			if got != test.want {
				t.Errorf("the client got %q, want %q", got, test.want)
			}
			if text := r.log.String(); (test.fault == "") != (text == "") || !strings.Contains(text, test.fault) {
				t.Errorf("got the log %q, want %q", text, test.fault)
			} else if text != "" && !strings.Contains(text, "backend 'b', model 'm', instance 'm_0_0': [request id: r] ") {
				t.Errorf("the log does not name backend, model, instance and request: %s", text)
			}
		})
	}
}

// final returns the final response, or nil. It fails the test if there are several.
func (c *client) final() (last *infer.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range c.responses {
		if r.Final {
			if i != len(c.responses)-1 {
				c.t.Errorf("response %d of %d is final", i, len(c.responses))
			}
			last = r
		}
	}
	return last
}

func mustNot(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func must(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), text) {
		t.Errorf("got error %v, want %q", err, text)
	}
}

// TestPanicsOfHooks checks that panics in hooks are recovered, logged with their stack and returned
// as errors, and that nothing leaks.
func TestPanicsOfHooks(t *testing.T) {
	for hook, test := range map[string]struct {
		breaks func(*author)
		want   string
	}{
		"New":         {func(a *author) { a.initialize = func(*sdk.BackendEnv) error { panic("oh") } }, "backend 'b': New panicked"},
		"NewModel":    {func(a *author) { a.newModel = func(*sdk.ModelEnv) error { panic("oh") } }, "backend 'b', model 'm': NewModel panicked"},
		"NewInstance": {func(a *author) { a.newInstance = func(*sdk.InstanceEnv) error { panic("oh") } }, "backend 'b', model 'm', instance 'm_0_0': NewInstance panicked"},
	} {
		t.Run(hook, func(t *testing.T) {
			a := &author{execute: identity}
			test.breaks(a)
			r, err := tryStart(t, a, with(""))
			if err == nil || infer.AsError(err).Message != test.want {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if text := r.log.String(); !strings.Contains(text, test.want) || !strings.Contains(text, `"error":"oh"`) || !strings.Contains(text, "execute_test.go") {
				t.Errorf("got the log %s, want the panic with its stack", text)
			}
		})
	}
	t.Run("Execute", func(t *testing.T) {
		first := true
		r := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
			if first {
				first = false
				_ = answer(requests[0], sdk.SendFinal)
				panic("oh")
			}
			return identity(ctx, requests)
		}}, with(""))
		a, b := ask(t, 1), ask(t, 2)
		report := <-r.execute(a, b)
		const want = "backend 'b', model 'm', instance 'm_0_0': Execute panicked"
		if report.Err == nil || report.Err.Error() != want {
			t.Errorf("got report %+v, want %q", report, want)
		}
		if got := a.wait(1)[0]; got.Err != nil {
			t.Errorf("what was answered before: got error %v, want none", got.Err)
		}
		if got := b.wait(1)[0]; got.Err == nil || got.Err.Message != want {
			t.Errorf("got %+v, want %q", got, want)
		}
		a.wantInput(1)
		b.wantInput(1)
		c := ask(t, 3)
		if report := <-r.execute(c); report.Err != nil {
			t.Errorf("the next batch: got error %v, want none", report.Err)
		}
	})
	t.Run("an Execute that ends its goroutine", func(t *testing.T) {
		first := true
		r := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
			if first {
				first = false
				runtime.Goexit()
			}
			return identity(ctx, requests)
		}}, with(""))
		c := ask(t, 1)
		if report := <-r.execute(c); report.Err == nil || !strings.HasSuffix(report.Err.Error(), "Execute ended its goroutine") {
			t.Errorf("got report %+v, want that it ended its goroutine", report)
		}
		if report := <-r.execute(ask(t, 2)); report.Err != nil {
			t.Errorf("the next batch: got error %v, want none", report.Err)
		}
	})
	for hook, a := range map[string]*author{
		"NewModel":    {newModel: func(*sdk.ModelEnv) error { runtime.Goexit(); return nil }},
		"NewInstance": {newInstance: func(*sdk.InstanceEnv) error { runtime.Goexit(); return nil }},
	} {
		t.Run("a "+hook+" that ends its goroutine", func(t *testing.T) {
			if _, err := tryStart(t, a, with("")); err == nil || !strings.HasSuffix(err.Error(), hook+" ended its goroutine") {
				t.Errorf("got %v, want that it ended its goroutine", err)
			}
		})
	}
	t.Run("a Close that ends its goroutine", func(t *testing.T) {
		closes := 0
		r := start(t, &author{execute: identity, closed: func(what string) {
			if what == "instance" {
				closes++
				runtime.Goexit()
			}
		}}, with(""))
		if err := r.instance.Close(t.Context()); err != nil || closes != 1 {
			t.Errorf("got error %v after %d calls of Close, want none after one", err, closes)
		}
	})
	t.Run("New and Attributes that end their goroutine", func(t *testing.T) {
		for hook, a := range map[string]*author{
			"New": {initialize: func(*sdk.BackendEnv) error { runtime.Goexit(); return nil }}, "Attributes": {asked: runtime.Goexit},
		} {
			if _, err := tryStart(t, a, with("")); err == nil || !strings.HasSuffix(err.Error(), hook+" ended its goroutine") {
				t.Errorf("%s: got %v, want that it ended its goroutine", hook, err)
			}
		}
	})
	t.Run("Ready and ends that end their goroutine", func(t *testing.T) {
		var closed []string
		a := &author{execute: identity, ready: func(context.Context) error { runtime.Goexit(); return nil }, closed: func(what string) {
			closed = append(closed, what)
			runtime.Goexit()
		}}
		r, err := tryStart(t, a, with(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.instance.Ready(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "Ready ended its goroutine") {
			t.Errorf("Ready: got %v, want that it ended its goroutine", err)
		}
		r.close()
		if want := []string{"instance", "model", "backend"}; !slices.Equal(closed, want) {
			t.Errorf("got closed %v, want %v", closed, want)
		}
		for _, want := range []string{"Ready ended its goroutine", "Instance.Close ended its goroutine", "Model.Close ended its goroutine", "backend 'b': Close ended its goroutine"} {
			if text := r.log.String(); !strings.Contains(text, want) {
				t.Errorf("got the log %s, want %q", text, want)
			}
		}
	})
	t.Run("Ready and the ends", func(t *testing.T) {
		r, err := tryStart(t, &author{execute: identity, ready: func(context.Context) error { panic("oh") }, closed: func(string) { panic("oh") }}, with(""))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.instance.Ready(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "Ready panicked") {
			t.Errorf("Ready: got %v, want that it panicked", err)
		}
		r.close()
		for _, want := range []string{"Ready panicked", "Instance.Close panicked", "Model.Close panicked", "backend 'b': Close panicked"} {
			if text := r.log.String(); !strings.Contains(text, want) {
				t.Errorf("got the log %s, want %q", text, want)
			}
		}
		if err := r.instance.Ready(t.Context()); err == nil {
			t.Error("Ready of a closed instance: got no error")
		}
	})
}

// TestErrorsOfHooks checks that errors of hooks are returned unchanged and not logged.
func TestErrorsOfHooks(t *testing.T) {
	refuse := sdk.Errorf(sdk.Unsupported, "reshape not supported for input tensor")
	for hook, a := range map[string]*author{
		"New":         {initialize: func(*sdk.BackendEnv) error { return refuse }},
		"NewModel":    {newModel: func(*sdk.ModelEnv) error { return refuse }},
		"NewInstance": {newInstance: func(*sdk.InstanceEnv) error { return refuse }},
	} {
		if r, err := tryStart(t, a, with("")); !errors.Is(err, error(refuse)) || r.log.String() != "" {
			t.Errorf("%s: got %v and the log %s, want the error and no log", hook, err, r.log.String())
		}
	}
}

// TestRequestsReportTheirFields checks the accessors of a request and their error texts, which are
// Triton's.
func TestRequestsReportTheirFields(t *testing.T) {
	var r *sdk.Request
	fixture := start(t, &author{execute: func(ctx context.Context, requests []*sdk.Request) error {
		r = requests[0]
		texts := func(err error, want string) {
			t.Helper()
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		_, err := r.Input("X")
		texts(err, "[request id: r] unknown request input name X")
		_, err = r.InputAt(1)
		texts(err, "[request id: r] out of bounds index 1: request has 1 inputs")
		_, err = r.Parameter(2)
		texts(err, "out of bounds index 2: request has 1 parameters")
		_, err = r.CorrelationNumber()
		texts(err, "[request id: r] correlation ID in request is not an unsigned int")
		if text, err := r.CorrelationText(); text != "s" || err != nil {
			t.Errorf("got correlation %q, %v", text, err)
		}
		if p, err := r.Parameter(0); p.Name != "p" || p.Int != 7 || err != nil || r.ParameterCount() != 1 {
			t.Errorf("got parameter %+v, %v", p, err)
		}
		in, err := r.InputAt(0)
		if err != nil || in.Name() != "IN" || in.DataType() != sdk.Int32 || len(in.Data()) != 4 || in.Shape()[0] != 1 {
			t.Errorf("got input %+v, %v", in, err)
		}
		if r.ID() != "r" || r.Flags() != sdk.SequenceStart|sdk.SequenceEnd || r.TimeoutMicros() != 9 || r.Priority() != 2 || !r.Wants("OUT") || r.Wants("X") || r.Cancelled() {
			t.Errorf("got %q %d %d %d", r.ID(), r.Flags(), r.TimeoutMicros(), r.Priority())
		}
		p, err := r.NewResponse()
		mustNot(t, err)
		_, err = p.Output("X", sdk.Int32, []int64{1})
		texts(err, "unexpected inference output 'X' for model 'm'")
		_, err = p.Output("OUT", sdk.Int32, []int64{-1})
		texts(err, "output 'OUT' of INT32 has shape [-1], want a type and dimensions that give a size")
		_, err = p.Output("OUT", sdk.Bytes, []int64{1})
		texts(err, "output 'OUT' is of type BYTES: its size must be given")
		_, err = p.Output("OUT", sdk.Int32, []int64{0})
		mustNot(t, err)
		_, err = p.Output("OUT", sdk.Int32, []int64{1})
		texts(err, "allocated buffer for output 'OUT' already exists")
		if code := infer.AsError(err).Code; code != infer.AlreadyExists {
			t.Errorf("got code %s, want Already exists", code)
		}
		for _, v := range []any{"text", 3, int64(4), true, 1.5} {
			mustNot(t, p.SetParameter("p", v))
		}
		texts(p.SetParameter("p", []int{1}), "parameter 'p' has a value of type []int, want a string, an integer, a bool or a float")
		mustNot(t, p.Send(sdk.SendFinal, nil))
		return r.Release(sdk.ReleaseAll)
	}}, with(""))
	c := ask(t, 1)
	q := c.task.Request
	q.Correlation.Text, q.Flags, q.TimeoutMicros, q.Priority = "s", infer.SequenceStart|infer.SequenceEnd, 9, 2
	q.Parameters, q.Outputs = []infer.Parameter{{Name: "p", Kind: infer.IntParameter, Int: 7}}, []string{"OUT"}
	<-fixture.execute(c)
	got := c.wait(1)[0]
	if text := fmt.Sprint(got.Parameters); text != "[{p 1 text 0 false 0} {p 2  3 false 0} {p 2  4 false 0} {p 3  0 true 0} {p 4  0 false 1.5}]" {
		t.Errorf("got parameters %s", text)
	}
	if in, err := r.Input("IN"); err != nil || in.Data() != nil {
		t.Errorf("after the release: got %v, %v, want an input without bytes", in, err)
	}
}

// TestStringsAreChecked checks that a BYTES output becomes an error if its elements do not match
// its shape.
func TestStringsAreChecked(t *testing.T) {
	config := strings.Replace(with(""), `"data_type":"TYPE_INT32","dims":[-1]}]}`, `"data_type":"TYPE_STRING","dims":[-1]}]}`, 1)
	wrong := false
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		p, err := requests[0].NewResponse()
		mustNot(t, err)
		if wrong {
			data, err := p.OutputSize("OUT", sdk.Bytes, []int64{2}, 6)
			mustNot(t, err)
			data[0] = 9
		} else {
			mustNot(t, p.OutputElements("OUT", []int64{2}, [][]byte{[]byte("one"), {}}))
		}
		mustNot(t, p.Send(sdk.SendFinal, nil))
		return requests[0].Release(sdk.ReleaseAll)
	}}, config)
	a := ask(t, 1)
	<-r.execute(a)
	if got := a.wait(1)[0]; got.Err != nil || string(got.Outputs[0].Data) != "\x03\x00\x00\x00one\x00\x00\x00\x00" {
		t.Errorf("got %+v", got)
	}
	wrong = true
	b := ask(t, 1)
	<-r.execute(b)
	if got := b.wait(1)[0]; got.Err == nil || got.Err.Message != "output 'OUT' of BYTES[2] has 0 elements and 6 bytes left over" {
		t.Errorf("got %+v", got)
	}
}
