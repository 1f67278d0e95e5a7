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

// TestStepsFollowTheirInputs runs scripts: "ask" sends a request (with its outputs in brackets),
// "calls" lists the steps that models have yet to answer, "m: OUT=1." makes a model respond, and
// "said" lists the client's responses.
func TestStepsFollowTheirInputs(t *testing.T) {
	chain := ParseEnsemble("A", "B", "m(IN=A)->OUT=X", "n(IN=X)->OUT=B")
	fork := ParseEnsemble("A", "B C", "m(IN=A)->OUT=X", "n(IN=X)->OUT=B", "o(IN=X)->OUT=C")
	join := ParseEnsemble("A", "D", "m(IN=A)->OUT=X", "n(IN=A)->OUT=Y", "o(IN=X,IN1=Y)->OUT=D")
	opt := ParseEnsemble("A O", "B C", "m(IN=A,IN1=O)->OUT=B,OUT1=X", "n(IN=A,IN1=X)->OUT=C")
	stream := ParseEnsemble("A", "B C", "r*(IN=A)->OUT=X,OUT1=C", "n(IN=X)->OUT=B")
	twice := ParseEnsemble("A", "B", "r*(IN=A)->OUT=X", "s*(IN=X)->OUT=B")
	for _, c := range []struct {
		name   string
		config Config
		script []string
	}{
		{"a chain", chain, []string{"ask A=1", "calls m(IN=1)", "m: OUT=2.", "calls n(IN=2)", "said", "n: OUT=3.", "said B=3."}},
		{"a fork waits for both", fork, []string{
			"ask A=1", "m: OUT=2.", "calls n(IN=2) o(IN=2)", "o: OUT=4.", "said", "n: OUT=3.", "said B=3,C=4.",
		}},
		{"only what is wanted is run", fork, []string{"ask[C] A=1", "m: OUT=2.", "calls o(IN=2)", "o: OUT=4.", "said C=4."}},
		{"outputs come in the order in which they are wanted", fork, []string{
			"ask[C,B] A=1", "m: OUT=2.", "n: OUT=3.", "o: OUT=4.", "said C=4,B=3.",
		}},
		{"a join waits for both", join, []string{"ask A=1", "calls m(IN=1) n(IN=1)", "n: OUT=3.", "calls m(IN=1)", "m: OUT=2.", "calls o(IN=2,IN1=3)", "o: OUT=5.", "said D=5."}},
		{
			"an output that is also read is not lost with its reader", ParseEnsemble("A", "X B", "m(IN=A)->OUT=X", "n(IN=X)->OUT=B"),
			[]string{"ask[X] A=1", "calls m(IN=1)", "m: OUT=2.", "said X=2."},
		},
		{"an input can be an output", ParseEnsemble("A", "A B", "m(IN=A)->OUT=B"), []string{"ask[A] A=1", "calls", "said A=1."}},
		{"what the model says beside is dropped", chain, []string{"ask A=1", "m: OUT=2,MORE=9.", "n: OUT=3,OUT=4.", "said B=3."}},
		{"the response may come before the end", chain, []string{"ask A=1", "m: OUT=2", "calls m(IN=1) n(IN=2)", "n: OUT=3.", "said", "m: .", "said B=3."}},

		{"an optional input is left out", opt, []string{"ask A=1", "calls m(IN=1)", "m: OUT=2,OUT1=3.", "calls n(IN=1,IN1=3)", "n: OUT=4.", "said B=2,C=4."}},
		{"a missing output is left out", opt, []string{"ask A=1 O=9", "calls m(IN=1,IN1=9)", "m: OUT1=3.", "n: OUT=4.", "said C=4."}},
		{"a missing output feeds a step as nothing", opt, []string{"ask A=1", "m: OUT=2.", "calls n(IN=1)", "n: nothing.", "said B=2."}},
		{"no output at all", chain, []string{"ask A=1", "m: nothing.", "calls n()", "n: nothing.", "said ."}},
		{"no response at all", chain, []string{"ask A=1", "m: .", "calls",
			"said !Invalid argument: in ensemble 'e', [request id: q] unexpected deadlock, at least one output is not set while no more ensemble steps can be made."}},

		{"an error ends it", chain, []string{"ask A=1", "m: !bad.", "calls", "said !Unsupported: in ensemble 'e', bad."}},
		{"an error waits for the steps in flight", fork, []string{
			"ask A=1", "m: OUT=2.", "n: !bad.", "said", "calls o(IN=2)", "o: OUT=4.", "said !Unsupported: in ensemble 'e', bad.",
		}},
		{"of errors the first one counts", fork, []string{
			"ask A=1", "m: OUT=2.", "n: !bad.", "o: !worse.", "said !Unsupported: in ensemble 'e', bad.",
		}},
		{"after an error no step begins", join, []string{"ask A=1", "m: !bad.", "n: OUT=3.", "calls", "said !Unsupported: in ensemble 'e', bad."}},
		{"a step is refused", chain, []string{"refuse n", "ask A=1", "m: OUT=2.", "said !Internal: in ensemble 'e', Exceeds maximum queue size."}},
		{"a model cannot be found", chain, []string{"missing n", "ask A=1", "calls", "said !Not found: in ensemble 'e', Request for unknown model: 'n' is not found."}},
		{"the client has gone", chain, []string{"ask A=1", "gone", "calls m(IN=1)", "m: OUT=2.", "calls", "said !Cancelled: in ensemble 'e', ."}},

		{"each response of a stream goes its way", stream, []string{
			"ask A=1", "r: OUT=a,OUT1=b", "calls r(IN=1) n(IN=a)", "r: OUT=c,OUT1=d", "calls r(IN=1) n(IN=a) n(IN=c)",
			"n: OUT=x.", "said B=x,C=b", "r: .", "said", "n: OUT=y.", "said B=y,C=d.",
		}},
		{"a stream ends by itself", stream, []string{"ask A=1", "r: OUT=a,OUT1=b", "n: OUT=x.", "said B=x,C=b", "r: .", "said ."}},
		{"a stream without responses", stream, []string{"ask A=1", "r: .", "said ."}},
		{"responses are paired by what they are made from", stream, []string{
			"ask A=1", "r: OUT=a,OUT1=b", "r: OUT=c,OUT1=d", "second n: OUT=y.", "said B=y,C=d", "n: OUT=x.", "said B=x,C=b", "r: .", "said .",
		}},
		{"a stream with gaps", stream, []string{
			"ask A=1", "r: OUT=a", "n: OUT=x.", "said B=x", "r: nothing", "calls r(IN=1) n()", "n: nothing.", "said ", "r: OUT1=d.", "n: OUT=y.", "said B=y,C=d.",
		}},
		{"a wanted part of a stream", stream, []string{"ask[C] A=1", "r: OUT=a,OUT1=b", "calls r(IN=1)", "said C=b", "r: OUT=c,OUT1=d.", "said C=d."}},
		{"an error in a stream", stream, []string{
			"ask A=1", "r: OUT=a,OUT1=b", "n: OUT=x.", "said B=x,C=b", "r: !bad", "r: OUT=c,OUT1=d", "calls r(IN=1)", "said", "r: .", "said !Unsupported: in ensemble 'e', bad.",
		}},
		{"a stream of streams", twice, []string{
			"ask A=1", "r: OUT=a", "r: OUT=b.", "calls s(IN=a) s(IN=b)", "s: OUT=1", "second s: OUT=2", "said B=1 B=2", "s: OUT=3.", "said B=3", "s: .", "said .",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeComposer(t)
			config := c.config
			config.Composer, config.Observer = k, &Tally{}
			e := New(config)
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			for _, line := range c.script {
				k.step(ctx, gone, e, line)
			}
			k.settled(e)
		})
	}
}

func (k *fakeComposer) step(ctx context.Context, gone func(), e *Scheduler, line string) {
	k.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	switch outputs, asks := strings.CutPrefix(word, "ask"); {
	case asks:
		var wanted []string
		if outputs != "" {
			wanted = strings.Split(strings.Trim(outputs, "[]"), ",")
		}
		k.ask(ctx, e, wanted, rest)
	case word == "calls":
		k.mu.Lock()
		got := k.textLocked()
		k.mu.Unlock()
		if got != rest {
			k.t.Fatalf("%s: got %q", line, got)
		}
	case word == "said":
		if got := k.said(); got != rest {
			k.t.Fatalf("%s: got %q", line, got)
		}
	case word == "gone":
		gone()
	case word == "refuse":
		k.refuse[rest] = errFull
	case word == "missing":
		k.missing = rest
	case word == "second": // the second request of the model
		model, text, _ := strings.Cut(rest, ": ")
		first := k.take(model)
		k.answer(model, text)
		k.calls = append([]*stepCall{first}, k.calls...)
	default:
		k.answer(strings.TrimSuffix(word, ":"), rest)
	}
}

// TestStepsGetWhatTheRequestSays checks that a step's request gets the id, sequence, priority,
// timeout, parameters and caller of the ensemble's request.
func TestStepsGetWhatTheRequestSays(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B", "m(IN=A)->OUT=X,OUT1=Y", "n(IN=X)->OUT=B")
	config.Composer, config.Observer = k, &Tally{}
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

// TestResponsesChooseTheSequence checks that the parameters of a response can choose the sequence
// of the following steps.
func TestResponsesChooseTheSequence(t *testing.T) {
	const start, end = infer.SequenceStart, infer.SequenceEnd
	own := infer.CorrelationID{Number: 77}
	for _, c := range []struct {
		name, parameters string
		correlation      infer.CorrelationID
		flags            uint32
		err              string
	}{
		{"nothing", "", own, start, ""},
		{"others", "x=y", own, start, ""},
		{"number", "sequence_id:=5", infer.CorrelationID{Number: 5}, 0, ""},
		{"text", "sequence_id=five;sequence_start?=true", infer.CorrelationID{Text: "five"}, start, ""},
		{"flags alone", "sequence_end?=true", own, end, ""},
		{"both flags", "sequence_id:=7;sequence_start?=true;sequence_end?=true", infer.CorrelationID{Number: 7}, start | end, ""},
		{"no flags", "sequence_start?=false", own, 0, ""},
		{"a long text", "sequence_id=" + strings.Repeat("x", 129), own, 0, "string correlation ID cannot be longer than 128 characters"},
		{"an id that is a truth", "sequence_id?=true", own, 0, "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING"},
		{"a start that is a text", "sequence_start=x", own, 0, "expect parameter 'sequence_start' to be TRITONSERVER_PARAMETER_BOOL"},
		{"an end that is a number", "sequence_end:=1", own, 0, "expect parameter 'sequence_end' to be TRITONSERVER_PARAMETER_BOOL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFakeComposer(t)
			config := ParseEnsemble("A", "Z", "m(IN=A)->OUT=X", "n(IN=A,IN1=X)->OUT=Y", "o(IN=Y)->OUT=Z")
			config.Composer, config.Observer = k, &Tally{}
			e := New(config)
			req := &infer.Request{Model: "e", Correlation: own, Flags: start, Inputs: []infer.Tensor{{Name: "A", Data: []byte("1"), Shape: []int64{1}}}}
			if err := e.Submit(t.Context(), req, k.heard); err != nil {
				t.Fatal(err)
			}
			k.answer("m", "OUT=2;"+c.parameters+".")
			if c.err != "" {
				if got, want := k.said(), "in ensemble 'e', "+c.err+"."; !strings.HasSuffix(got, want) {
					t.Errorf("got %q, want it to end with %q", got, want)
				}
				k.settled(e)
				return
			}
			k.answer("n", "OUT=3.")
			k.answer("o", "OUT=4.")
			k.settled(e)
			for i, want := range []struct {
				correlation infer.CorrelationID
				flags       uint32
			}{{own, start}, {c.correlation, c.flags}, {c.correlation, c.flags}} {
				if r := k.history[i]; r.Correlation != want.correlation || r.Flags != want.flags {
					t.Errorf("step %d got sequence %+v flags %d, want %+v flags %d", i, r.Correlation, r.Flags, want.correlation, want.flags)
				}
			}
			label := sequenceLabel{correlation: c.correlation, flags: c.flags}
			if got, want := k.raw[0].Parameters, label.parameters(); !slices.Equal(got, want) {
				t.Errorf("the response has parameters %+v, want %+v", got, want)
			}
		})
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
		config.Composer, config.Observer = k, &Tally{}
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
			config.Batches, config.Composer, config.Observer = c.ensemble, k, &Tally{}
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

// TestInflightLimitSpansRequests checks that a step's requests in flight stay within the limit
// across all requests of the ensemble.
func TestInflightLimitSpansRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "m(IN=A)->OUT=X", "n(IN=X)->OUT=B")
		config.MaxInflight, config.Composer, config.Observer = 2, k, &Tally{}
		e := New(config)
		calls := func(want string) {
			t.Helper()
			synctest.Wait()
			k.mu.Lock()
			defer k.mu.Unlock()
			if got := k.textLocked(); got != want {
				t.Errorf("got calls %q, want %q", got, want)
			}
		}
		ctx, gone := context.WithCancel(t.Context())
		for _, in := range []string{"A=1", "A=2", "A=3"} {
			k.ask(t.Context(), e, nil, in)
		}
		k.ask(ctx, e, nil, "A=4")
		k.ask(t.Context(), e, nil, "A=5")
		calls("m(IN=1) m(IN=2)")
		k.answer("m", "OUT=a.")
		calls("m(IN=2) m(IN=3) n(IN=a)")
		gone() // the fourth gives up its wait
		calls("m(IN=2) m(IN=3) n(IN=a)")
		if got, want := k.said(), "!Cancelled: in ensemble 'e', ."; got != want {
			t.Errorf("the one that has gone heard %q, want %q", got, want)
		}
		k.answer("m", "!bad.")
		calls("m(IN=3) n(IN=a) m(IN=5)")
		k.answer("m", "OUT=b.")
		k.answer("m", "OUT=c.")
		calls("n(IN=a) n(IN=b)") // the other step has its own limit
		time.Sleep(patienceTurn - time.Nanosecond)
		calls("n(IN=a) n(IN=b)")
		time.Sleep(time.Nanosecond)
		calls("n(IN=a) n(IN=b) n(IN=c)") // after patienceTurn a request may exceed the limit, so that it does not wait forever
		for range 3 {
			k.answer("n", "OUT=z.")
		}
		k.settled(e)
	})
}

// TestFailedRequestsGiveUpTheirTurn checks that a failed request does not wait for its turn first,
// and that thousands of failures do not recurse.
func TestFailedRequestsGiveUpTheirTurn(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B C", "m(IN=A)->OUT=B", "n(IN=A)->OUT=C")
	config.MaxInflight, config.Composer, config.Observer = 1, k, &Tally{}
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

// TestStepsKeepSlotsOfTheWindow checks that results of a stream's response keep its slot, but not
// for so long that models which wait for each other are blocked.
func TestStepsKeepSlotsOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "r*(IN=A)->OUT=X", "n(IN=X)->OUT=B")
		config.Composer, config.Observer = k, &Tally{}
		e := New(config)
		slots := func(want int) {
			t.Helper()
			synctest.Wait()
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.slots != want {
				t.Errorf("%d slots are kept, want %d", k.slots, want)
			}
		}
		k.ask(t.Context(), e, nil, "A=1")
		k.answer("r", "OUT=a")
		k.answer("r", "OUT=b")
		slots(2)
		k.answer("n", "OUT=x.")
		slots(1) // the client has received it
		time.Sleep(patienceSlots - time.Nanosecond)
		k.answer("r", "OUT=c")
		time.Sleep(patienceSlots)
		slots(2) // there was progress
		time.Sleep(patienceSlots)
		slots(0) // no progress: perhaps the models wait for each other
		k.answer("r", "OUT=d")
		slots(1) // the new response keeps its slot
		time.Sleep(2 * patienceSlots)
		slots(0)
		for range 3 {
			k.answer("n", "OUT=x.")
		}
		k.answer("r", ".")
		k.settled(e)

		config = ParseEnsemble("A", "B", "r*(IN=A)->OUT=X", "n(IN=X)->OUT=Y", "r*(IN=Y)->OUT=B")
		config.Composer, config.Observer = k, &Tally{}
		e = New(config)
		k.ask(t.Context(), e, nil, "A=1")
		k.answer("r", "OUT=a")
		slots(0) // the same model has a later step, so slots are not kept
		k.answer("r", ".")
		k.answer("n", "OUT=x.")
		k.answer("r", ".")
		k.settled(e)
	})
}

// TestWaitingStepsAreCharged checks that a step that waits for its turn holds the memory of the
// response that it comes from, which is on the account of the model.
func TestWaitingStepsAreCharged(t *testing.T) {
	k := newFakeComposer(t)
	config := ParseEnsemble("A", "B", "r*(IN=A)->OUT=X", "n(IN=X)->OUT=Y", "r*(IN=Y)->OUT=B")
	config.MaxInflight, config.Composer, config.Observer = 1, k, &Tally{}
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

// TestFailedRequestsGiveUpSlots checks that a failed request keeps no slots of the stream that it
// reads, so that the stream can end.
func TestFailedRequestsGiveUpSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B X", "r*(IN=A)->OUT=X", "n(IN=X)->OUT=B")
		config.MaxInflight, config.Composer, config.Observer = 1, k, &Tally{}
		e := New(config)
		ctx, leave := context.WithCancel(t.Context())
		k.ask(ctx, e, nil, "A=1")
		for range 4 { // n has the first, the others wait for their turn; all wait for their B
			k.answer("r", "OUT=a")
		}
		leave()
		synctest.Wait()
		k.answer("n", "!gone.")
		k.mu.Lock()
		if k.slots != 0 {
			t.Errorf("%d slots are kept for a client that has gone", k.slots)
		}
		k.mu.Unlock()
		k.answer("r", "OUT=a")
		k.answer("r", ".")
		k.settled(e)
	})
}

// TestStopRefusesAndDrainWaits checks that Stop rejects new requests and waits for those in flight,
// and that Drain only waits.
func TestStopRefusesAndDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newFakeComposer(t)
		config := ParseEnsemble("A", "B", "m(IN=A)->OUT=B")
		config.Composer, config.Observer = k, &Tally{}
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
		count := &Tally{}
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
		config.Composer, config.Observer = k, &Tally{}
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
