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
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

const (
	decoupled = `"model_transaction_policy":{"decoupled":true}`
	sequences = `"sequence_batching":{}`
	iterative = `"sequence_batching":{"iterative_sequence":true}`
)

// kept is a backend that keeps requests for the test to answer.
type kept struct {
	mu       sync.Mutex
	requests []*sdk.Request
}

func (k *kept) execute(_ context.Context, requests []*sdk.Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, requests...)
	return nil
}

// take removes and returns the kept requests.
func (k *kept) take() []*sdk.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.requests
	k.requests = nil
	return list
}

// TestRequestsMayBeAnsweredLater checks that an instance is free once Execute returns, although
// other goroutines respond and release requests later, in either order. Close waits for the
// responses.
func TestRequestsMayBeAnsweredLater(t *testing.T) {
	k := &kept{}
	r := start(t, &author{execute: k.execute}, with(""))
	a, b := ask(t, 1), ask(t, 2)
	if report := <-r.execute(a, b); report.Err != nil || report.Failed != nil {
		t.Errorf("got report %+v, want no failure", report)
	}
	list := k.take()
	if n := r.instance.Open(); n != 2 {
		t.Errorf("got %d open requests, want 2", n)
	}
	f := list[1].Factory()
	mustNot(t, list[1].Release(sdk.ReleaseAll))
	b.wantInput(1)
	a.wantInput(2)
	closed := make(chan error, 1)
	go func() { closed <- r.instance.Close(context.Background()) }()
	mustNot(t, answer(list[0], sdk.SendFinal))
	select {
	case err := <-closed:
		t.Fatalf("Close returned with %v while a request had no answer", err)
	default:
	}
	mustNot(t, list[0].Release(sdk.ReleaseAll))
	p, err := f.NewResponse()
	mustNot(t, err)
	_, err = p.Output("OUT", sdk.Int32, []int64{1})
	mustNot(t, err)
	mustNot(t, p.Send(sdk.SendFinal, nil))
	mustNot(t, <-closed)
	for _, c := range []*client{a, b} {
		if got := c.wait(1)[0]; !got.Final || got.Err != nil {
			t.Errorf("got %+v, want the response", got)
		}
		c.wantInput(1)
	}
	if n := r.instance.Open(); n != 0 {
		t.Errorf("got %d open requests, want none", n)
	}
	if text := r.log.String(); text != "" {
		t.Errorf("got the log %s, want none", text)
	}
}

// TestRequestsThatAreDropped checks that the garbage collector finds requests that are dropped
// without a response or a release.
func TestRequestsThatAreDropped(t *testing.T) {
	for name, test := range map[string]struct {
		answers bool
		fault   string
	}{
		"without an answer": {false, "the request had no final response and the backend keeps it no more; it gets an error"},
		"without a release": {true, "the request had not been released and the backend keeps it no more; that is done now"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
				if test.answers {
					return answer(requests[0], sdk.SendFinal)
				}
				return nil
			}}, with(""))
			c := ask(t, 1)
			<-r.execute(c)
			testkit.Eventually(t, patience, func() bool {
				runtime.GC()
				return strings.Contains(r.log.String(), test.fault)
			})
			got := c.wait(1)[0]
			if failed := got.Err != nil; failed == test.answers || failed && got.Err.Message != "[request id: r] model 'm' has not answered the request" {
				t.Errorf("got %+v", got)
			}
			c.wantInput(1)
		})
	}
}

// TestCloseFailsRemainingRequests checks that requests left at Close get an error, are released and
// logged. Later responses have no effect.
func TestCloseFailsRemainingRequests(t *testing.T) {
	k := &kept{}
	r, err := tryStart(t, &author{execute: k.execute}, with(""))
	if err != nil {
		t.Fatal(err)
	}
	a, b := ask(t, 1), ask(t, 2)
	<-r.execute(a, b)
	list := k.take()
	mustNot(t, answer(list[1], sdk.SendFinal))
	over, cancel := context.WithCancel(t.Context())
	cancel() // Close waits for no response
	mustNot(t, r.instance.Close(over))
	if got := a.wait(1)[0]; got.Err == nil || got.Err.Message != "[request id: r] model 'm' has not answered the request" {
		t.Errorf("got %+v, want an error", got)
	}
	a.wantInput(1)
	b.wantInput(1)
	for _, want := range []string{"the request had no final response when its instance was closed; it gets an error", "the request had not been released when its instance was closed; that is done now"} {
		if text := r.log.String(); !strings.Contains(text, want) {
			t.Errorf("got the log %s, want %q", text, want)
		}
	}
	p, err := list[0].NewResponse()
	if err == nil {
		t.Errorf("a response after the end: got %v, want an error", p)
	}
	must(t, list[0].Factory().SendFlags(sdk.SendFinal), "a response was sent after the final one")
	must(t, list[0].Release(sdk.ReleaseAll), "the request was released twice")
	if n := len(a.wait(1)); n != 1 {
		t.Errorf("got %d responses, want one", n)
	}
	r.model.Close()
	r.backend.Close()
}

// TestAnExecuteThatHangs checks that a forced Close abandons a hanging Execute and fails its
// requests.
func TestAnExecuteThatHangs(t *testing.T) {
	entered, free := make(chan context.Context, 1), make(chan struct{})
	var closes []string
	var mu sync.Mutex
	r, err := tryStart(t, &author{
		execute: func(ctx context.Context, requests []*sdk.Request) error {
			entered <- ctx
			<-free
			return identity(ctx, requests)
		},
		closed: func(what string) { mu.Lock(); defer mu.Unlock(); closes = append(closes, what) },
	}, with(""))
	if err != nil {
		t.Fatal(err)
	}
	c := ask(t, 1)
	done := r.execute(c)
	ctx := <-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.instance.Close(over); err == nil || !strings.Contains(err.Error(), "instance 'm_0_0' does not return") {
		t.Errorf("got %v, want that it does not return", err)
	}
	if ctx.Err() == nil {
		t.Error("the context of Execute has not ended")
	}
	if report := <-done; report.Err == nil {
		t.Errorf("got report %+v, want an error", report)
	}
	if got := c.wait(1)[0]; got.Err == nil || got.Err.Code != infer.Unavailable {
		t.Errorf("got %+v, want an error", got)
	}
	close(free)
	<-r.instance.Ended()
	c.wantInput(1)
	if n := len(c.wait(1)); n != 1 {
		t.Errorf("got %d responses, want one", n)
	}
	r.model.Close()
	r.backend.Close()
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(closes); got != "[instance model backend]" {
		t.Errorf("closed were %s", got)
	}
}

// TestOutputsAreNotLeaked checks that output memory is freed by the response that holds it or by
// its receiver.
func TestOutputsAreNotLeaked(t *testing.T) {
	shape := []int64{engine.SmallOutput}
	var p *sdk.Response
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		q := requests[0]
		discarded, err := q.NewResponse()
		mustNot(t, err)
		_, err = discarded.Output("OUT", sdk.Int32, shape)
		mustNot(t, err)
		discarded.Discard()
		failed, err := q.NewResponse()
		mustNot(t, err)
		_, err = failed.Output("OUT", sdk.Int32, shape)
		mustNot(t, err)
		mustNot(t, failed.Send(0, errors.New("in place of the output")))
		p, err = q.NewResponse()
		mustNot(t, err)
		_, err = p.Output("OUT", sdk.Int32, shape)
		mustNot(t, err)
		mustNot(t, p.Send(sdk.SendFinal, nil))
		late, err := q.Factory().NewResponse() // invalid: after the final response
		if err == nil {
			t.Errorf("a response after the final one: got %v, want an error", late)
		}
		return q.Release(sdk.ReleaseAll)
	}}, with(decoupled))
	c := ask(t, 1)
	c.keep = true
	<-r.execute(c)
	got := c.wait(2)
	if got[0].Err == nil || got[0].Outputs != nil || got[0].Final || len(got[1].Outputs[0].Data) != 4*engine.SmallOutput {
		t.Errorf("got %+v, %+v", got[0], got[1])
	}
	if n := r.memory[2].refs.Load(); n != 1 {
		t.Errorf("what its receiver has not released has %d references, want 1", n)
	}
	for _, one := range got {
		one.Release()
	}
	r.wantNoMemory()
}

// TestResponsesThatAreDroppedUnsent checks that the garbage collector frees the memory of responses
// that were never sent.
func TestResponsesThatAreDroppedUnsent(t *testing.T) {
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		for range 2 { // the first one is part of the request's allocation
			p, err := requests[0].NewResponse()
			mustNot(t, err)
			_, err = p.Output("OUT", sdk.Int32, []int64{engine.SmallOutput})
			mustNot(t, err)
		}
		mustNot(t, requests[0].Factory().SendFlags(sdk.SendFinal))
		return requests[0].Release(sdk.ReleaseAll)
	}}, with(decoupled))
	c := ask(t, 1)
	<-r.execute(c)
	c.wait(1)
	testkit.Eventually(t, patience, func() bool {
		runtime.GC()
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.memory[0].refs.Load() == 0 && r.memory[1].refs.Load() == 0
	})
}

// TestForwardedInputsAreNotCopied checks that a forwarded input is not copied and lives as long as
// the response.
func TestForwardedInputsAreNotCopied(t *testing.T) {
	r := start(t, &author{execute: forward}, with(""))
	c := ask(t, 1, 2)
	c.keep = true
	<-r.execute(c)
	got := c.wait(1)[0]
	if &got.Outputs[0].Data[0] != &c.task.Request.Inputs[0].Data[0] {
		t.Error("the output is a copy")
	}
	c.wantInput(2)
	got.Release()
	c.wantInput(1)
}

// TestSendWaitsForRoom checks that Send blocks while a decoupled model is a full window ahead of
// its client.
func TestSendWaitsForRoom(t *testing.T) {
	for name, test := range map[string]struct {
		window engine.WindowLimits
		n      int // responses that fit in the window
	}{
		"responses": {engine.WindowLimits{Responses: 3}, 3}, "bytes": {engine.WindowLimits{Bytes: 9}, 3}, "default": {engine.WindowLimits{}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			var sent sync.WaitGroup
			k := &kept{}
			r := start(t, &author{execute: k.execute}, with(decoupled), func(_ *fixture, env *engine.Environment) { env.Window = test.window })
			c := ask(t, 1)
			c.keep = true
			<-r.execute(c)
			q := k.take()[0]
			sent.Go(func() {
				for range test.n + 2 {
					mustNot(t, answer(q, 0))
				}
				mustNot(t, q.Factory().SendFlags(sdk.SendFinal))
				mustNot(t, q.Release(sdk.ReleaseAll))
			})
			first := c.wait(test.n)
			first[0].Release()
			second := c.wait(test.n + 1)
			second[1].Release()
			second[2].Release()
			sent.Wait()
			for _, one := range c.wait(test.n + 3)[3:] {
				one.Release()
			}
		})
	}
}

// TestCancelledRequestsDoNotWait checks that Send on a cancelled request drops responses beyond the
// window and returns Cancelled. The final response is still sent.
func TestCancelledRequestsDoNotWait(t *testing.T) {
	k := &kept{}
	r := start(t, &author{execute: k.execute}, with(decoupled), func(_ *fixture, env *engine.Environment) { env.Window.Responses = 1 })
	c := ask(t, 1)
	c.keep = true
	<-r.execute(c)
	q := k.take()[0]
	mustNot(t, answer(q, 0))
	if q.Cancelled() || q.Context().Err() != nil || q.Factory().Cancelled() {
		t.Error("the request is cancelled before its client has gone")
	}
	failed := make(chan error, 1)
	go func() { failed <- answer(q, 0) }()
	c.cancel()
	if err := <-failed; err == nil || infer.AsError(err).Code != infer.Cancelled {
		t.Errorf("got %v, want Cancelled", err)
	}
	if !q.Cancelled() || !q.Factory().Cancelled() {
		t.Error("the request is not cancelled")
	}
	mustNot(t, answer(q, sdk.SendFinal))
	mustNot(t, q.Release(sdk.ReleaseAll))
	for _, one := range c.wait(2) {
		one.Release()
	}
	c.wantInput(1)
}

// TestResponsesKeepTheirOrder checks that responses from several goroutines are delivered one at a
// time and none after the final one.
func TestResponsesKeepTheirOrder(t *testing.T) {
	k := &kept{}
	r := start(t, &author{execute: k.execute}, with(decoupled))
	c := ask(t, 1)
	inside := false
	send := c.task.Send
	c.task.Send = func(p *infer.Response) {
		if inside {
			t.Error("two responses are handed up at once")
		}
		inside = true
		send(p)
		inside = false
	}
	<-r.execute(c)
	q := k.take()[0]
	var sent sync.WaitGroup
	for range 8 {
		sent.Go(func() {
			for range 100 {
				p, err := q.Factory().NewResponse()
				mustNot(t, err)
				mustNot(t, p.Send(0, nil))
			}
		})
	}
	sent.Wait()
	mustNot(t, q.Factory().SendFlags(sdk.SendFinal))
	mustNot(t, q.Release(sdk.ReleaseAll))
	if got := c.wait(801); !got[800].Final || !got[800].Empty {
		t.Errorf("the last response is %+v, want the final flag", got[800])
	}
}

// TestSequencesWaitForTheRelease checks that Done waits for the release of a sequence's requests,
// because the sequence's next request may follow Done.
func TestSequencesWaitForTheRelease(t *testing.T) {
	k := &kept{}
	r := start(t, &author{execute: k.execute}, with(sequences))
	a, b := ask(t, 1), ask(t, 2)
	done := r.execute(a, b)
	testkit.Eventually(t, patience, func() bool { return r.instance.Open() == 2 })
	list := k.take()
	mustNot(t, answer(list[0], sdk.SendFinal))
	mustNot(t, answer(list[1], sdk.SendFinal))
	mustNot(t, list[0].Release(sdk.ReleaseAll))
	select {
	case report := <-done:
		t.Fatalf("Done was called with %+v while a request was not released", report)
	default:
	}
	now := sdk.Now()
	mustNot(t, r.author().Statistics.Request(list[1], false, sdk.Times{ExecStart: now, ComputeStart: now, ComputeEnd: now, ExecEnd: now}))
	mustNot(t, list[1].Release(sdk.ReleaseAll))
	report := <-done
	if report.Err != nil || fmt.Sprint(report.Failed) != "[1]" || report.Start != now {
		t.Errorf("got report %+v, want that the second request failed, at its time", report)
	}
}

// TestIterativeSequences checks that a rescheduled request goes back to the scheduler after any
// number of non-final responses.
func TestIterativeSequences(t *testing.T) {
	r := start(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		mustNot(t, answer(requests[0], 0))
		mustNot(t, requests[0].Release(sdk.ReleaseReschedule))
		must(t, requests[0].Factory().SendFlags(sdk.SendFinal), "a response was sent after the request had been given back to be executed again")
		mustNot(t, answer(requests[1], sdk.SendFinal))
		must(t, requests[1].Release(sdk.ReleaseReschedule), "the request was released in order to get it again, though it had its final response")
		return requests[1].Release(sdk.ReleaseAll)
	}}, with(iterative+","+decoupled))
	a, b := ask(t, 1), ask(t, 2)
	report := <-r.execute(a, b)
	if len(report.Rescheduled) != 1 || report.Rescheduled[0] != a.task || report.Err != nil {
		t.Errorf("got report %+v, want the first request rescheduled", report)
	}
	if got := a.wait(1)[0]; got.Final {
		t.Errorf("got %+v, want no final response", got)
	}
	b.wait(1)
	a.wantInput(1)
	b.wantInput(1)
}

// TestASendThatWaitsEndsWithItsInstance checks that a forced Close ends a Send that waits for a
// client that never reads.
func TestASendThatWaitsEndsWithItsInstance(t *testing.T) {
	failed := make(chan error, 1)
	r, err := tryStart(t, &author{execute: func(_ context.Context, requests []*sdk.Request) error {
		q := requests[0]
		mustNot(t, answer(q, 0))
		failed <- answer(q, 0)
		return nil
	}}, with(decoupled), func(_ *fixture, env *engine.Environment) { env.Window.Responses = 1 })
	if err != nil {
		t.Fatal(err)
	}
	c := ask(t, 1)
	c.keep = true
	r.execute(c)
	first := c.wait(1)[0]
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.instance.Close(over); err == nil {
		t.Error("Close: got no error")
	}
	must(t, <-failed, "a response was sent after the final one")
	<-r.instance.Ended()
	first.Release()
	for _, one := range c.wait(2)[1:] {
		one.Release()
	}
	c.wantInput(1)
	r.model.Close()
	r.backend.Close()
}

// TestARequestTakesTwoAllocations checks that a request costs two allocations: the author's part
// and the internal part.
func TestARequestTakesTwoAllocations(t *testing.T) {
	r := start(t, &author{execute: forward}, with(""))
	got := make(chan struct{}, 1)
	c := ask(t, 1)
	c.task.Send = func(p *infer.Response) { p.Release(); got <- struct{}{} }
	b := &backend.Batch{Tasks: []*backend.Task{c.task}, Done: func(*backend.Batch, backend.Report) {}}
	n := testing.AllocsPerRun(1000, func() {
		r.instance.Execute(b)
		<-got
	})
	if n > 2 {
		t.Errorf("got %v allocations, want 2", n)
	}
}
