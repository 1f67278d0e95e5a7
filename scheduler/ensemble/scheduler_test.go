package ensemble

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// TestStepsInheritTheRequest checks that a step's request gets the id, sequence, priority,
// timeout, parameters and caller of the ensemble's request.
func TestStepsInheritTheRequest(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B", "m(IN=A)->OUT=X,OUT1=Y", "n(IN=X)->OUT=B")
	config.Composer, config.Observer = k, &CountingObserver{}
	e := New(config)
	outer := &infer.Request{Model: "caller"}
	req := &infer.Request{
		Model: "e", ID: "id", Correlation: infer.CorrelationID{Text: "c"}, Flags: infer.SequenceEnd | 8, Priority: 3, TimeoutMicros: 7,
		Parameters: parseParameters("p:=1"), Inputs: []infer.Tensor{{Name: "A", DataType: infer.Uint8, Shape: []int64{1}, Data: []byte("1")}},
		Caller: infer.NewCaller("caller", 1, []*infer.Request{outer}, true),
	}
	if err := e.Submit(t.Context(), req, k.heard); err != nil {
		t.Fatal(err)
	}
	k.answer("m", "OUT=2.")
	k.answer("n", "OUT=3.")
	k.settled(e)
	if len(k.history) != 2 {
		t.Fatalf("%d steps were run, want 2", len(k.history))
	}
	for i, r := range k.history {
		if r.ID != "id" || r.Correlation != req.Correlation || r.Flags != req.Flags || r.Priority != 3 || r.TimeoutMicros != 7 ||
			!slices.Equal(r.Parameters, req.Parameters) || r.Caller != req.Caller || r.Version != infer.LatestVersion {
			t.Errorf("step %d got %+v", i, r)
		}
	}
	if got := k.history[0].Outputs; !slices.Equal(got, []string{"OUT", "OUT1"}) {
		t.Errorf("the first step is asked for %v, want all that is mapped", got)
	}
}

// TestResponsesTellTheSequenceOnce checks that a response has the sequence parameters once, and not
// at all if no step has produced any of its outputs.
func TestResponsesTellTheSequenceOnce(t *testing.T) {
	for _, c := range []struct {
		outputs []string
		answer  string
		want    int
	}{
		{[]string{"A"}, "", 0},
		{[]string{"B"}, "OUT=.", 0},
		{[]string{"B", "C"}, "OUT=,OUT1=1.", 3},
		{[]string{"B", "C"}, "OUT=1,OUT1=1.", 3},
		{[]string{"B", "C"}, "nothing.", 0},
	} {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "A B C", "m(IN=A)->OUT=B,OUT1=C")
		config.Composer, config.Observer = k, &CountingObserver{}
		e := New(config)
		k.ask(t.Context(), e, c.outputs, "A=1")
		if c.answer != "" {
			k.answer("m", c.answer)
		}
		if got := len(k.raw[0].Parameters); got != c.want {
			t.Errorf("outputs %v answered with %q have %d parameters, want %d", c.outputs, c.answer, got, c.want)
		}
		k.settled(e)
	}
}

// TestBatchDimensionsAreMadeAndTakenAway checks that a batch dimension is added or removed where
// only one side has one and the dims allow it.
func TestBatchDimensionsAreMadeAndTakenAway(t *testing.T) {
	for _, c := range []struct {
		name                  string
		ensemble, first, then bool // whether each has a batch dimension
		dims                  []int64
		in, mid, out          []int64 // shapes: inputs of the first and second step, output
	}{
		{"nobody", false, false, false, []int64{-1}, []int64{3}, []int64{3}, []int64{3}},
		{"everybody", true, true, true, []int64{-1}, []int64{3}, []int64{3}, []int64{3}},
		{"a batch is made", false, false, true, []int64{-1}, []int64{3}, []int64{1, 3}, []int64{3}},
		{"a batch is made at once", false, true, true, []int64{-1}, []int64{1, 3}, []int64{3}, []int64{3}},
		{"no batch is made where the shape has it", false, true, true, []int64{-1, -1}, []int64{3}, []int64{3}, []int64{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeComposer(t)
			k.batches["m"], k.batches["n"], k.dims = c.first, c.then, c.dims
			config := ParseEnsemble("A", "B", "m(IN=A)->OUT=X", "n(IN=X)->OUT=B")
			config.Batches, config.Composer, config.Observer = c.ensemble, k, &CountingObserver{}
			e := New(config)
			req := &infer.Request{Model: "e", BatchSize: 3, Inputs: []infer.Tensor{{Name: "A", Data: []byte("123"), Shape: []int64{3}}}}
			if err := e.Submit(t.Context(), req, func(*infer.Response) {}); err != nil {
				t.Fatal(err)
			}
			k.answer("m", "OUT=123.")
			k.answer("n", "OUT=123.")
			for i, want := range [][]int64{c.in, c.mid} {
				if got := k.history[i].Inputs; !slices.Equal(got[:1][0].Shape, want) {
					t.Errorf("step %d got shape %v, want %v", i, got[0].Shape, want)
				}
			}
		})
	}
	taken := value{tensor: infer.Tensor{Shape: []int64{1, 3}}, batch: 1}
	for _, c := range []struct {
		batch int64
		dims  []int64
		want  []int64
	}{
		{1, []int64{-1}, []int64{3}},
		{1, []int64{-1, -1}, []int64{1, 3}},
		{1, []int64{4}, []int64{3}}, // the model's own check rejects it
		{2, []int64{-1}, []int64{1, 3}},
	} {
		taken.batch = c.batch
		if got := taken.converted(false, c.dims); !slices.Equal(got, c.want) {
			t.Errorf("a batch of %d for dims %v: got shape %v, want %v", c.batch, c.dims, got, c.want)
		}
	}
}

// TestFailedRequestsGiveUpTheirTurn checks that a failed request does not wait for its turn first,
// and that thousands of failures do not recurse.
func TestFailedRequestsGiveUpTheirTurn(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B C", "m(IN=A)->OUT=B", "n(IN=A)->OUT=C")
	config.MaxInflight, config.Composer, config.Observer = 1, k, &CountingObserver{}
	e := New(config)
	k.ask(t.Context(), e, nil, "A=1")
	first := k.take("n")
	k.answer("m", "OUT=1.")
	k.ask(t.Context(), e, nil, "A=2") // its step n waits
	k.answer("m", "!bad.")
	if got, want := k.said(), "!Unsupported: in ensemble 'e', bad."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	const many = 20_000
	k.refuse["m"] = errFull
	for range many {
		k.ask(t.Context(), e, []string{"C"}, "A=3")
	}
	k.refuse["n"] = errFull
	first.send(&infer.Response{Final: true})
	if got := len(k.answers); got != many+1 {
		t.Errorf("%d requests were answered, want %d", got, many+1)
	}
	k.settled(e)
}

// TestWaitingStepsAreCharged checks that a step that waits for its turn holds the memory of the
// response that it comes from, which is on the account of the model.
func TestWaitingStepsAreCharged(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B", "r*(IN=A)->OUT=X", "n(IN=X)->OUT=Y", "r*(IN=Y)->OUT=B")
	config.MaxInflight, config.Composer, config.Observer = 1, k, &CountingObserver{}
	e := New(config)
	k.ask(t.Context(), e, nil, "A=1")
	c := k.take("r")
	var held []*countedMemory
	for range 3 { // without outputs: the responses have no other memory
		held = append(held, k.countedMemory(false))
		c.send(&infer.Response{Held: held[len(held)-1]})
	}
	for i, want := range []int{0, 1, 1} {
		if got := held[i].refs; got != want {
			t.Errorf("response %d has %d references, want %d", i, got, want)
		}
	}
	k.answer("n", "!gone.")
	for i, m := range held {
		if m.refs != 0 {
			t.Errorf("response %d has %d references at the end", i, m.refs)
		}
	}
	c.send(&infer.Response{Empty: true, Final: true})
	k.settled(e)
}

// TestStopRefusesAndDrainWaits checks that Stop rejects new requests and waits for those in flight,
// and that Drain only waits.
func TestStopRefusesAndDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "m(IN=A)->OUT=B")
		config.Composer, config.Observer = k, &CountingObserver{}
		e := New(config)
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.ask(t.Context(), e, nil, "A=1")
		ended := make(chan string, 2)
		go func() { _ = e.Drain(t.Context()); ended <- "drained" }()
		synctest.Wait()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Stop(soon); err == nil {
			t.Error("Stop returned although a request is inside")
		}
		err := e.Submit(t.Context(), &infer.Request{ID: "late"}, func(*infer.Response) {})
		if want := "[request id: late] Server is stopping, scheduler for model has stopped accepting new inference requests"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
		k.answer("m", "OUT=1.")
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		<-ended
		called := false
		e.Retire(nil, func() { called = true })
		if !called {
			t.Error("Retire did not call back")
		}
		k.settled(e)
	})
}

// TestInferWaitsForTheLastResponse checks that Infer returns after the last response, and that
// successes and failures are counted.
func TestInferWaitsForTheLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "m(IN=A)->OUT=B")
		count := &CountingObserver{}
		config.Composer, config.Observer = k, count
		e := New(config)
		go func() {
			synctest.Wait()
			k.answer("m", "OUT=1.")
			synctest.Wait()
			k.answer("m", "!bad.")
		}()
		for range 2 {
			if err := e.Infer(t.Context(), &infer.Request{Inputs: []infer.Tensor{{Name: "A", Shape: []int64{1}}}}, k.heard); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := k.said(), "B=1. !Unsupported: in ensemble 'e', bad."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if count.executed.Load() != 1 || count.failed.Load() != 2 {
			t.Errorf("%d successes and %d failures were counted, want 1 and 2", count.executed.Load(), count.failed.Load())
		}
	})
}

// TestInferAwaitsStepAfterStep checks that the client's goroutine waits actively for one step after
// another, until a step takes too long.
func TestInferAwaitsStepAfterStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "l(IN=A)->OUT=W", "m(IN=W)->OUT=X", "n(IN=X)->OUT=Y", "o(IN=Y)->OUT=B")
		config.Composer, config.Observer = k, &CountingObserver{}
		e := New(config)
		var order []string
		k.spins = func(model string, done <-chan struct{}) {
			order = append(order, model)
			if len(done) > 0 {
				t.Errorf("%s is waited for although there is nothing to wait for", model)
			}
			if model == "n" {
				go func() { // while the client's goroutine sleeps
					synctest.Wait()
					k.answer("n", "OUT=1.")
					synctest.Wait()
					k.answer("o", "OUT=1.")
				}()
				return
			}
			k.answer(model, "OUT=1.")
			if len(done) == 0 {
				t.Errorf("%s has answered, and is waited for", model)
			}
		}
		if err := e.Infer(t.Context(), &infer.Request{Inputs: []infer.Tensor{{Name: "A", Shape: []int64{1}}}}, k.heard); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(order, " "), "l m n"; got != want {
			t.Errorf("waited for %s, want %s", got, want)
		}
		if got, want := k.said(), "B=1."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
