package stacked

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// TestMergeOfLargeInputs merges inputs that need memory, in the calling goroutine and in another
// one.
func TestMergeOfLargeInputs(t *testing.T) {
	for _, rows := range []int64{8, copyAside / 1024} {
		r := newFixture(t, "", nil)
		large := func(fill byte) *infer.Request {
			data := make([]byte, rows*1024)
			for i := range data {
				data[i] = fill
			}
			return request(infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(rows, 1024), Data: data, Memory: r.ledger.lend("a client's input")})
		}
		b := r.run(large(1), large(2), large(3))
		got := r.model.got[0].Inputs[0]
		if !slices.Equal(got.Shape, dims(3*rows, 1024)) || got.Memory == nil {
			t.Fatalf("%d rows: got shape %v in memory %v", rows, got.Shape, got.Memory)
		}
		for i, v := range got.Data {
			if want := byte(1 + int64(i)/(rows*1024)); v != want {
				t.Fatalf("%d rows: byte %d is %d, want %d", rows, i, v, want)
			}
		}
		memory := got.Memory.(*lent)
		memory.Retain() // as an instance that has lent it to a stub
		r.model.open[0].Send(&infer.Response{Final: true})
		if memory.refs != 1 {
			t.Errorf("%d rows: %d references after the last answer, want the instance's", rows, memory.refs)
		}
		memory.Release()
		for _, task := range b.Tasks {
			task.Request.Inputs[0].Release()
		}
		r.release(b)
	}
}

// TestNoCopyOfOne checks that the input of a batch of one request is not copied.
func TestNoCopyOfOne(t *testing.T) {
	ragged := `input { name: "X" data_type: TYPE_UINT8 dims: [ -1 ] allow_ragged_batch: true }`
	for _, config := range []string{"", ragged, ragged + `parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`} {
		r := newFixture(t, config, nil)
		in := infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(1, 1<<20), Data: make([]byte, 1<<20), Memory: r.ledger.lend("a client's input")}
		b := r.run(request(in))
		got := r.model.got[0].Inputs[0]
		if &got.Data[0] != &in.Data[0] || got.Memory != in.Memory {
			t.Errorf("%q: the bytes were copied", config)
		}
		r.model.open[0].Send(&infer.Response{Final: true})
		in.Release()
		r.release(b)
	}
}

func TestNoMemoryFailsTheBatch(t *testing.T) {
	r := newFixture(t, "", nil)
	r.ledger.limit = 1000
	large := func() *infer.Request {
		return request(
			infer.Tensor{Name: "W", DataType: infer.Uint8, Shape: dims(1, 500), Data: make([]byte, 500)},
			infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(1, 4000), Data: make([]byte, 4000)})
	}
	b := r.run(large(), large())
	want := infer.Errorf(infer.Unavailable, "batch of 2 requests to model 'm' cannot be stacked: no memory today")
	for _, a := range b.tasks {
		if len(a.responses) != 1 || a.responses[0].Err == nil || *a.responses[0].Err != *want {
			t.Errorf("got %+v, want the error of the memory", a.responses)
		}
	}
	r.release(b)
}

// TestAPanicOfDoneDoesNotLeaveExecute checks that Execute does not panic after Done was called,
// even if Done panics: its caller would end the batch a second time.
func TestAPanicOfDoneDoesNotLeaveExecute(t *testing.T) {
	r := newFixture(t, "", nil)
	r.ledger.limit = 1000
	large := func() *infer.Request {
		return request(
			infer.Tensor{Name: "W", DataType: infer.Uint8, Shape: dims(1, 500), Data: make([]byte, 500)},
			infer.Tensor{Name: "X", DataType: infer.Uint8, Shape: dims(1, 4000), Data: make([]byte, 4000)})
	}
	b := r.batch(large(), large())
	done := b.Done
	b.Done = func(of *backend.Batch, report backend.Report) {
		done(of, report)
		panic("a bug of a scheduler")
	}
	r.in.Execute(&b.Batch)
	if len(b.reports) != 1 {
		t.Errorf("got %d times Done, want 1", len(b.reports))
	}
	for i, a := range b.tasks {
		if len(a.responses) != 1 {
			t.Errorf("request %d: got %d answers, want 1", i, len(a.responses))
		}
	}
	r.release(b)
}

func TestHeadKeepsSharedFields(t *testing.T) {
	x := func(change func(*infer.Request)) *infer.Request {
		r := request(ints("X", dims(1), 1))
		change(r)
		return r
	}
	number := func(name string, n int64) infer.Parameter {
		return infer.Parameter{Name: name, Kind: infer.IntParameter, Int: n}
	}
	text := func(name, s string) infer.Parameter {
		return infer.Parameter{Name: name, Kind: infer.StringParameter, String: s}
	}
	type head struct {
		ID          string
		Correlation infer.CorrelationID
		Flags       uint32
		Timeout     uint64
		Outputs     []string
		Parameters  []infer.Parameter // without batch_requests
		Requests    string            // the parameter batch_requests
	}
	for _, test := range []struct {
		name     string
		requests []*infer.Request
		want     head
	}{
		{"nothing of their own", []*infer.Request{x(func(*infer.Request) {}), x(func(*infer.Request) {})}, head{}},
		{
			"what is common stays",
			[]*infer.Request{
				x(func(r *infer.Request) {
					r.ID, r.Correlation.Number, r.Flags, r.TimeoutMicros = "a", 7, 3, 30
					r.Parameters = []infer.Parameter{number("k", 1), text("mode", "fast"), number("same", 2)}
				}),
				x(func(r *infer.Request) {
					r.ID, r.Correlation.Number, r.Flags, r.TimeoutMicros = "a", 7, 3, 20
					r.Parameters = []infer.Parameter{number("same", 2), number("k", 2), text("mode", "fast")}
				}),
				x(func(r *infer.Request) {
					r.ID, r.Correlation.Number, r.Flags = "a", 7, 3
					r.Parameters = []infer.Parameter{number("same", 2), text("mode", "fast")}
				}),
			},
			head{
				ID: "a", Correlation: infer.CorrelationID{Number: 7}, Flags: 3, Timeout: 20,
				Parameters: []infer.Parameter{text("mode", "fast"), number("same", 2)},
				Requests: `[{"size":1,"id":"a","correlation_id":7,"flags":3,"parameters":{"k":1,"mode":"fast","same":2}},` +
					`{"size":1,"id":"a","correlation_id":7,"flags":3,"parameters":{"k":2,"mode":"fast","same":2}},` +
					`{"size":1,"id":"a","correlation_id":7,"flags":3,"parameters":{"mode":"fast","same":2}}]`,
			},
		},
		{
			"what differs is in batch_requests alone",
			[]*infer.Request{
				x(func(r *infer.Request) { r.ID, r.Correlation.Text = "a", "tea" }),
				x(func(r *infer.Request) {
					r.Parameters = []infer.Parameter{text(requestsParameter, "a client's"), {Name: "b", Kind: infer.BoolParameter, Bool: true}, {Name: "d", Kind: infer.DoubleParameter, Double: 0.5}}
				}),
			},
			head{Requests: `[{"size":1,"id":"a","correlation_id":"tea"},{"size":1,"parameters":{"b":true,"batch_requests":"a client's","d":0.5}}]`},
		},
		{
			"outputs that any wants",
			[]*infer.Request{
				x(func(r *infer.Request) { r.Outputs = []string{"B", "A"} }),
				x(func(r *infer.Request) { r.Outputs = []string{"C", "A"} }),
			},
			head{Outputs: []string{"B", "A", "C"}},
		},
		{
			"all outputs if one wants all",
			[]*infer.Request{x(func(r *infer.Request) { r.Outputs = []string{"B"} }), x(func(*infer.Request) {})},
			head{},
		},
		{
			"one alone with an id",
			[]*infer.Request{x(func(r *infer.Request) { r.ID = "a" })},
			head{ID: "a", Requests: `[{"size":1,"id":"a"}]`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixture(t, "", func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
			before := make([]infer.Request, len(test.requests))
			for i, req := range test.requests {
				before[i] = *req
				before[i].Parameters, before[i].Outputs = slices.Clone(req.Parameters), slices.Clone(req.Outputs)
			}
			r.release(r.run(test.requests...))
			m := r.model.got[0]
			got := head{ID: m.ID, Correlation: m.Correlation, Flags: m.Flags, Timeout: m.TimeoutMicros, Outputs: m.Outputs}
			for _, p := range m.Parameters {
				if p.Name == requestsParameter {
					got.Requests = p.String
					continue
				}
				got.Parameters = append(got.Parameters, p)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
			if len(test.requests) > 1 && (m.BatchSize != int64(len(test.requests)) || !slices.Equal(m.Parts, test.requests) || m.Caller != nil) {
				t.Errorf("batch size %d of %d parts", m.BatchSize, len(m.Parts))
			}
			for i, req := range test.requests {
				if !reflect.DeepEqual(*req, before[i]) {
					t.Errorf("request %d has been changed", i)
				}
			}
		})
	}
}

// TestNotesOfStrangeNumbers checks that NaN, which JSON does not have, becomes a string.
func TestNotesOfStrangeNumbers(t *testing.T) {
	r := newFixture(t, "", func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
	req := request(ints("X", dims(1), 1))
	nan := 0.0
	nan /= nan
	req.Parameters = []infer.Parameter{{Name: "n", Kind: infer.DoubleParameter, Double: nan}}
	r.release(r.run(req, request(ints("X", dims(1), 1))))
	text := r.model.got[0].Parameters[0].String
	if !json.Valid([]byte(text)) || !strings.Contains(text, `"n":"NaN"`) {
		t.Errorf("got %s", text)
	}
}

// TestParametersEncodeAsJSONMarshalDoes compares the text with json.Marshal for unusual parameters,
// including repeated names.
func TestParametersEncodeAsJSONMarshalDoes(t *testing.T) {
	strange := "\x00\x1f\"\\<>&\u2028\xffü\n"
	r := newFixture(t, "", func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
	req := request(ints("X", dims(1), 1))
	req.ID, req.Correlation.Text = "<", strange
	req.Parameters = []infer.Parameter{
		{Name: strange, Kind: infer.StringParameter, String: strange}, {Name: "b", Kind: infer.IntParameter, Int: -1},
		{Name: "a", Kind: infer.DoubleParameter, Double: 1e21}, {Name: "b", Kind: infer.BoolParameter}, {Name: "c"},
	}
	r.release(r.run(req, request(ints("X", dims(1), 1))))
	want, err := json.Marshal(map[string]any{strange: strange, "a": 1e21, "b": false, "c": nil})
	if err != nil {
		t.Fatal(err)
	}
	correlation, _ := json.Marshal(strange)
	whole := `[{"size":1,"id":"\u003c","correlation_id":` + string(correlation) + `,"parameters":` + string(want) + `},{"size":1}]`
	if got := r.model.got[0].Parameters[0].String; got != whole {
		t.Errorf("got  %s\nwant %s", got, whole)
	}
}

// TestNotesAreCharged checks that long texts are charged until the response, and that the batch is
// rejected if they do not fit.
func TestNotesAreCharged(t *testing.T) {
	for _, test := range []struct {
		size    int
		refused bool
	}{{1 << 10, false}, {4 << 20, true}} {
		var r *fixture
		var during int64
		r = newFixture(t, "", func(*infer.Request) *infer.Response {
			during = r.account.Used(budget.Frames)
			return &infer.Response{Final: true}
		})
		req := request(ints("X", dims(1), 1))
		req.Parameters = []infer.Parameter{{Name: "p", Kind: infer.StringParameter, String: strings.Repeat("\x01", test.size)}}
		answers := r.run(req, request(ints("X", dims(1), 1)))
		err := answers.tasks[0].responses[0].Err
		r.release(answers)
		if refused := err != nil && err.Code == infer.Unavailable; refused != test.refused {
			t.Errorf("%d bytes: got error %v", test.size, err)
		}
		if want := int64(6 * test.size); !test.refused && during < want {
			t.Errorf("got %d bytes charged during the execution, want at least %d", during, want)
		}
		if got := r.account.Used(budget.Frames); got != 0 {
			t.Errorf("got %d bytes charged after the response, want none", got)
		}
	}
}

// TestManyParametersAreNotCompared checks that long lists of parameters are compared only for
// equality, because comparing each pair takes quadratic time.
func TestManyParametersAreNotCompared(t *testing.T) {
	list := func(n int, name string) []infer.Parameter { // all lists share the last parameter
		list := make([]infer.Parameter, n)
		for i := range list {
			list[i] = infer.Parameter{Name: name + strconv.Itoa(i), Kind: infer.BoolParameter}
		}
		list[n-1].Name = "common"
		return list
	}
	for _, test := range []struct {
		n    int
		name string
		want int
	}{{mostCompared, "q", 1}, {mostCompared + 1, "q", 0}, {100_000, "q", 0}, {100_000, "p", 100_000}} {
		if got := inBoth(list(test.n, "p"), list(test.n, test.name)); len(got) != test.want {
			t.Errorf("%d parameters beside %s…: got %d in common, want %d", test.n, test.name, len(got), test.want)
		}
	}
}

// TestCallersOfAStackedBatch checks that the callers of the model's BLS requests are the original
// requests, which the scheduler knows.
func TestCallersOfAStackedBatch(t *testing.T) {
	r := newFixture(t, "", func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
	deep := request(ints("X", dims(1), 1))
	deep.Caller = infer.NewCaller("outer", 1, []*infer.Request{request(ints("X", dims(1), 1))}, true)
	a, b := request(ints("X", dims(1), 1)), deep
	r.release(r.run(a, b))
	caller := infer.NewCaller("m", 1, []*infer.Request{r.model.got[0]}, true)
	if !slices.Equal(caller.Requests, []*infer.Request{a, b}) {
		t.Errorf("the callers are %v", caller.Requests)
	}
	if got := (&infer.Request{Caller: caller}).Depth(); got != 2 {
		t.Errorf("depth %d, want 2", got)
	}
}
