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

func TestMergeConcatenatesAndPads(t *testing.T) {
	const ragged = `input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }`
	const raggedTexts = `input { name: "X" data_type: TYPE_STRING dims: [ -1 ] allow_ragged_batch: true }`
	const pad = `parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`
	padValue := func(v string) string {
		return pad + `parameters { key: "BATCH_PAD_VALUE" value { string_value: "` + v + `" } }`
	}
	extra := func(kind, dataType string) string {
		return ragged + `batch_input { kind: ` + kind + ` target_name: "E" data_type: ` + dataType + ` source_input: "X" }`
	}
	x := func(shape []int64, values ...int32) *infer.Request { return request(ints("X", shape, values...)) }
	// Requests of 2x1, 1x3 and 1x2 elements.
	uneven := []*infer.Request{x(dims(2, 1), 1, 2), x(dims(1, 3), 3, 4, 5), x(dims(1, 2), 6, 7)}
	flat := ints("X", dims(7), 1, 2, 3, 4, 5, 6, 7)

	for _, test := range []struct {
		name     string
		config   string
		requests []*infer.Request
		want     []infer.Tensor
		err      string
	}{
		{
			name:     "rows are put one behind the other",
			requests: []*infer.Request{x(dims(1, 2), 1, 2), x(dims(2, 2), 3, 4, 5, 6)},
			want:     []infer.Tensor{ints("X", dims(3, 2), 1, 2, 3, 4, 5, 6)},
		},
		{
			name: "inputs in another order",
			requests: []*infer.Request{
				request(ints("A", dims(1), 1), texts("B", dims(1), "one")),
				request(texts("B", dims(2), "two", ""), ints("A", dims(2), 2, 3)),
			},
			want: []infer.Tensor{ints("A", dims(3), 1, 2, 3), texts("B", dims(3), "one", "two", "")},
		},
		{
			name:     "items of no elements",
			requests: []*infer.Request{x(dims(1, 0)), x(dims(2, 0))},
			want:     []infer.Tensor{ints("X", dims(3, 0))},
		},
		{
			name:     "a batch of 0 has no rows whatever it brings",
			requests: []*infer.Request{x(dims(0, 2), 8, 9), x(dims(1, 2), 1, 2)},
			want:     []infer.Tensor{ints("X", dims(1, 2), 1, 2)},
		},
		{name: "shapes differ", requests: uneven, err: "input 'X' has shapes of which not only the first dimension differs"},
		{
			name:     "ranks differ",
			requests: []*infer.Request{x(dims(1, 1), 1), x(dims(1, 1, 1), 1)},
			err:      "input 'X' is INT32[1,1] and INT32[1,1,1]",
		},
		{
			name:     "types differ",
			requests: []*infer.Request{x(dims(1), 1), request(texts("X", dims(1), ""))},
			err:      "input 'X' is INT32[1] and BYTES[1]",
		},
		{
			name:     "an input that only one has",
			requests: []*infer.Request{x(dims(1), 1), request(ints("X", dims(1), 1), ints("Z", dims(1), 1))},
			err:      "one has 1 inputs, another 2",
		},
		{
			name:     "another input",
			requests: []*infer.Request{x(dims(1), 1), request(ints("Z", dims(1), 1))},
			err:      "only one has input 'Z'",
		},
		{name: "no batch dimension", requests: []*infer.Request{x(dims(1), 1), {Inputs: []infer.Tensor{ints("X", nil, 1)}}}, err: "input 'X' has no batch dimension"},
		{
			name:     "rows differ within a request",
			requests: []*infer.Request{request(ints("X", dims(1), 1), ints("Z", dims(2), 1, 2)), request(ints("X", dims(1), 1), ints("Z", dims(1), 1))},
			err:      "inputs 'X' and 'Z' have shapes [1] and [2]",
		},

		{name: "ragged", config: ragged, requests: uneven, want: []infer.Tensor{flat}},
		{name: "ragged, but alike", config: ragged, requests: []*infer.Request{x(dims(1, 2), 1, 2), x(dims(1, 2), 3, 4)}, want: []infer.Tensor{ints("X", dims(4), 1, 2, 3, 4)}},
		{name: "ragged, one alone", config: ragged, requests: []*infer.Request{x(dims(2, 1), 1, 2)}, want: []infer.Tensor{ints("X", dims(2), 1, 2)}},
		{
			name: "ragged texts", config: raggedTexts,
			requests: []*infer.Request{request(texts("X", dims(1, 2), "a", "bc")), request(texts("X", dims(1, 1), ""))},
			want:     []infer.Tensor{texts("X", dims(3), "a", "bc", "")},
		},

		{name: "element counts", config: extra("BATCH_ELEMENT_COUNT", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(3), 2, 3, 2)}},
		{name: "accumulated", config: extra("BATCH_ACCUMULATED_ELEMENT_COUNT", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(3), 2, 5, 7)}},
		{name: "accumulated from zero", config: extra("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(4), 0, 2, 5, 7)}},
		{name: "of one alone", config: extra("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "TYPE_INT32"), requests: uneven[:1], want: []infer.Tensor{ints("X", dims(2), 1, 2), ints("E", dims(2), 0, 2)}},
		{name: "largest as a shape", config: extra("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(3), 0, 0, 0)}},
		{name: "shapes of items", config: extra("BATCH_ITEM_SHAPE", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(4, 1), 1, 1, 3, 2)}},
		{name: "shapes of items, flat", config: extra("BATCH_ITEM_SHAPE_FLATTEN", "TYPE_INT32"), requests: uneven, want: []infer.Tensor{flat, ints("E", dims(4), 1, 1, 3, 2)}},
		{
			name: "as floats", config: extra("BATCH_ELEMENT_COUNT", "TYPE_FP32"), requests: uneven[:2],
			want: []infer.Tensor{
				ints("X", dims(5), 1, 2, 3, 4, 5),
				{Name: "E", DataType: infer.FP32, Shape: dims(2), Data: []byte{0, 0, 0, 0x40, 0, 0, 0x40, 0x40}},
			},
		},
		{
			name:   "of an input that is not there",
			config: extra("BATCH_ELEMENT_COUNT", "TYPE_INT32"), requests: []*infer.Request{request(ints("Z", dims(1), 1)), request(ints("Z", dims(1), 2))},
			want: []infer.Tensor{ints("Z", dims(2), 1, 2)},
		},

		{
			name: "padded", config: ragged + pad, requests: uneven,
			want: []infer.Tensor{ints("X", dims(4, 3), 1, 0, 0, 2, 0, 0, 3, 4, 5, 6, 7, 0)},
		},
		{
			name: "padded with a value", config: ragged + padValue("-1"), requests: uneven,
			want: []infer.Tensor{ints("X", dims(4, 3), 1, -1, -1, 2, -1, -1, 3, 4, 5, 6, 7, -1)},
		},
		{
			name: "padded in two dimensions", config: ragged + padValue("9"),
			requests: []*infer.Request{x(dims(1, 2, 1), 1, 2), x(dims(1, 1, 3), 3, 4, 5), x(dims(1, 0, 3))},
			want: []infer.Tensor{ints("X", dims(3, 2, 3),
				1, 9, 9, 2, 9, 9,
				3, 4, 5, 9, 9, 9,
				9, 9, 9, 9, 9, 9)},
		},
		{
			name: "padded to nothing", config: ragged + pad,
			requests: []*infer.Request{x(dims(1, 2, 0)), x(dims(1, 1, 0))},
			want:     []infer.Tensor{ints("X", dims(2, 2, 0))},
		},
		{
			name: "padded texts", config: raggedTexts + padValue("[PAD]"),
			requests: []*infer.Request{request(texts("X", dims(2, 1), "a", "b")), request(texts("X", dims(1, 2), "cd", ""))},
			want:     []infer.Tensor{texts("X", dims(3, 2), "a", "[PAD]", "b", "[PAD]", "cd", "")},
		},
		{
			name: "texts padded with nothing", config: raggedTexts + pad,
			requests: []*infer.Request{request(texts("X", dims(1, 1), "a")), request(texts("X", dims(1, 2), "cd", "e"))},
			want:     []infer.Tensor{texts("X", dims(2, 2), "a", "", "cd", "e")},
		},
		{
			name: "padded beyond all numbers", config: ragged + pad,
			requests: []*infer.Request{x(dims(1, 1<<40, 0)), x(dims(1, 0, 1<<40))},
			err:      "input 'X' would have shape [2,1099511627776,1099511627776] when it is padded",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixture(t, test.config, func(*infer.Request) *infer.Response { return &infer.Response{Final: true} })
			b := r.run(test.requests...)
			defer r.release(b)
			if test.err != "" {
				want := "requests of model 'm' cannot be stacked: " + test.err
				for i, a := range b.tasks {
					if len(a.responses) != 1 || a.responses[0].Err == nil || a.responses[0].Err.Message != want || !a.responses[0].Final {
						t.Errorf("task %d: got %v, want the error %q", i, a.responses, want)
					}
				}
				if len(b.reports) != 1 || b.reports[0].Err == nil || b.reports[0].Executed {
					t.Errorf("reports: %+v", b.reports)
				}
				return
			}
			if len(r.model.got) != 1 {
				t.Fatalf("the model got %d requests; the first answer is %+v", len(r.model.got), b.tasks[0].responses)
			}
			if got := r.model.got[0].Inputs; !sameTensors(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

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

// TestAPanicOfWhoeverIsTold checks that Execute does not panic after Done was called, even if Done
// panics: its caller would end the batch a second time.
func TestAPanicOfWhoeverIsTold(t *testing.T) {
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

func TestHeadJoinsWhatRequestsShare(t *testing.T) {
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

// TestNotesAreWhatJSONMarshals compares the text with json.Marshal for unusual parameters,
// including repeated names.
func TestNotesAreWhatJSONMarshals(t *testing.T) {
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
