package stacked

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestSplitGivesEachRequestItsRows(t *testing.T) {
	const ragged = `
input { name: "X" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
input { name: "S" data_type: TYPE_STRING dims: [ -1, -1 ] allow_ragged_batch: true optional: true }
output { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "T" data_type: TYPE_STRING dims: [ -1, -1 ] }
output { name: "P" data_type: TYPE_INT32 dims: [ 2, 3 ] reshape { shape: [ -1, 2 ] } }
batch_output { target_name: [ "Y", "P" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }
batch_output { target_name: "T" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "S" }
`
	const pad = ragged + `parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`
	x := func(outputs []string, shape ...int64) *infer.Request {
		n, _ := infer.Elements(shape)
		r := request(ints("X", shape, make([]int32, n)...))
		r.Outputs = outputs
		return r
	}
	uneven := []*infer.Request{x(nil, 2, 1), x(nil, 1, 3), x(nil, 1, 2)}
	withTexts := func(shape ...int64) *infer.Request {
		n, _ := infer.Elements(shape)
		return request(ints("X", dims(shape[0], 1), make([]int32, shape[0])...), texts("S", shape, make([]string, n)...))
	}
	for _, test := range []struct {
		name     string
		config   string
		requests []*infer.Request
		outputs  []infer.Tensor
		want     [][]infer.Tensor // the outputs of each request
		err      string
	}{
		{
			name:     "rows in the order of the requests",
			requests: []*infer.Request{x(nil, 2, 1), x(nil, 1, 1), x(nil, 1, 1)},
			outputs:  []infer.Tensor{ints("Y", dims(4, 2), 1, 2, 3, 4, 5, 6, 7, 8), ints("Z", dims(4), 1, 2, 3, 4)},
			want: [][]infer.Tensor{
				{ints("Y", dims(2, 2), 1, 2, 3, 4), ints("Z", dims(2), 1, 2)},
				{ints("Y", dims(1, 2), 5, 6), ints("Z", dims(1), 3)},
				{ints("Y", dims(1, 2), 7, 8), ints("Z", dims(1), 4)},
			},
		},
		{
			name:     "texts of all lengths",
			requests: []*infer.Request{x(nil, 1, 1), x(nil, 2, 1)},
			outputs:  []infer.Tensor{texts("T", dims(3, 2), "a", "", "bcd", "ef", "", "")},
			want:     [][]infer.Tensor{{texts("T", dims(1, 2), "a", "")}, {texts("T", dims(2, 2), "bcd", "ef", "", "")}},
		},
		{
			name:     "only what was asked for",
			requests: []*infer.Request{x([]string{"Z"}, 1, 1), x([]string{"Y", "Z"}, 1, 1), x([]string{"Q"}, 1, 1)},
			outputs:  []infer.Tensor{ints("Y", dims(3), 1, 2, 3), ints("Z", dims(3), 4, 5, 6)},
			want:     [][]infer.Tensor{{ints("Z", dims(1), 4)}, {ints("Y", dims(1), 2), ints("Z", dims(1), 5)}, nil},
		},
		{
			name:     "rows of nothing",
			requests: []*infer.Request{x(nil, 1, 1), x(nil, 1, 1)},
			outputs:  []infer.Tensor{ints("Y", dims(2, 0)), texts("T", dims(2, 0))},
			want:     [][]infer.Tensor{{ints("Y", dims(1, 0)), texts("T", dims(1, 0))}, {ints("Y", dims(1, 0)), texts("T", dims(1, 0))}},
		},
		{name: "no outputs", requests: []*infer.Request{x(nil, 1, 1), x(nil, 1, 1)}, want: [][]infer.Tensor{nil, nil}},
		{
			name: "too few rows", requests: []*infer.Request{x(nil, 2, 1), x(nil, 1, 1)},
			outputs: []infer.Tensor{ints("A", dims(3), 1, 2, 3), ints("Y", dims(2, 2), 1, 2, 3, 4)},
			err:     "output 'Y' of model 'm' has shape [2,2], which does not fit a stacked batch: want 3 in the first dimension",
		},
		{
			name: "a scalar", requests: []*infer.Request{x(nil, 1, 1), x(nil, 1, 1)}, outputs: []infer.Tensor{ints("Y", nil, 1)},
			err: "output 'Y' of model 'm' has shape [], which does not fit a stacked batch: want 2 in the first dimension",
		},

		{
			name: "scattered by the shapes of an input", config: ragged, requests: uneven,
			outputs: []infer.Tensor{ints("Y", dims(7), 1, 2, 3, 4, 5, 6, 7)},
			want:    [][]infer.Tensor{{ints("Y", dims(2, 1), 1, 2)}, {ints("Y", dims(1, 3), 3, 4, 5)}, {ints("Y", dims(1, 2), 6, 7)}},
		},
		{
			name: "scattered, one alone", config: ragged, requests: uneven[1:2],
			outputs: []infer.Tensor{ints("Y", dims(3), 3, 4, 5)},
			want:    [][]infer.Tensor{{ints("Y", dims(1, 3), 3, 4, 5)}},
		},
		{
			name: "scattered with fixed dimensions as the model sees them", config: ragged, requests: uneven[1:],
			outputs: []infer.Tensor{ints("P", dims(10), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)},
			want:    [][]infer.Tensor{{ints("P", dims(1, 3, 2), 1, 2, 3, 4, 5, 6)}, {ints("P", dims(1, 2, 2), 7, 8, 9, 10)}},
		},
		{
			name: "scattered texts", config: ragged, requests: []*infer.Request{withTexts(1, 1, 2), withTexts(2, 1, 1)},
			outputs: []infer.Tensor{texts("T", dims(4), "a", "bc", "", "d")},
			want:    [][]infer.Tensor{{texts("T", dims(1, 1, 2), "a", "bc")}, {texts("T", dims(2, 1, 1), "", "d")}},
		},
		{
			name: "scattered by an input that is not there", config: ragged, requests: uneven[:2],
			outputs: []infer.Tensor{texts("T", dims(3), "a", "bc", "d")},
			want:    [][]infer.Tensor{{texts("T", dims(2), "a", "bc")}, {texts("T", dims(1), "d")}},
		},
		{
			name: "too few to scatter", config: ragged, requests: uneven, outputs: []infer.Tensor{ints("Y", dims(6), 1, 2, 3, 4, 5, 6)},
			err: "output 'Y' of model 'm' has shape [6], which does not fit a stacked batch: it has fewer elements than the 3 requests are to get",
		},
		{
			name: "too many to scatter", config: ragged, requests: uneven, outputs: []infer.Tensor{ints("Y", dims(8), 1, 2, 3, 4, 5, 6, 7, 8)},
			err: "output 'Y' of model 'm' has shape [8], which does not fit a stacked batch: it has more elements than the 3 requests are to get",
		},
		{
			name: "too many texts", config: ragged, requests: []*infer.Request{withTexts(1, 1, 1), withTexts(1, 1, 1)},
			outputs: []infer.Tensor{texts("T", dims(3), "", "", "")},
			err:     "output 'T' of model 'm' has shape [3], which does not fit a stacked batch: it has more elements than the 2 requests are to get",
		},

		{
			name: "what was padded is trimmed", config: pad, requests: uneven,
			outputs: []infer.Tensor{ints("Y", dims(4, 3), 1, 0, 0, 2, 0, 0, 3, 4, 5, 6, 7, 0)},
			want:    [][]infer.Tensor{{ints("Y", dims(2, 1), 1, 2)}, {ints("Y", dims(1, 3), 3, 4, 5)}, {ints("Y", dims(1, 2), 6, 7)}},
		},
		{
			name: "trimmed in one of two dimensions", config: pad, requests: uneven[1:],
			outputs: []infer.Tensor{ints("P", dims(2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0)},
			want:    [][]infer.Tensor{{ints("P", dims(1, 3, 2), 1, 2, 3, 4, 5, 6)}, {ints("P", dims(1, 2, 2), 7, 8, 9, 10)}},
		},
		{
			name: "trimmed texts", config: pad, requests: []*infer.Request{withTexts(1, 2, 1), withTexts(1, 1, 2)},
			outputs: []infer.Tensor{texts("T", dims(2, 2, 2), "a", "-", "bc", "-", "d", "e", "-", "-")},
			want:    [][]infer.Tensor{{texts("T", dims(1, 2, 1), "a", "bc")}, {texts("T", dims(1, 1, 2), "d", "e")}},
		},
		{
			name: "padded, but answered flat", config: pad, requests: uneven,
			outputs: []infer.Tensor{ints("Y", dims(7), 1, 2, 3, 4, 5, 6, 7)},
			want:    [][]infer.Tensor{{ints("Y", dims(2, 1), 1, 2)}, {ints("Y", dims(1, 3), 3, 4, 5)}, {ints("Y", dims(1, 2), 6, 7)}},
		},
		{
			name: "alike, so not padded", config: pad, requests: []*infer.Request{x(nil, 1, 2), x(nil, 1, 2)},
			outputs: []infer.Tensor{ints("Y", dims(2, 2), 1, 2, 3, 4)},
			want:    [][]infer.Tensor{{ints("Y", dims(1, 2), 1, 2)}, {ints("Y", dims(1, 2), 3, 4)}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newFixture(t, test.config, nil)
			r.model.execute = func(*infer.Request) *infer.Response {
				response := &infer.Response{Final: true, Outputs: slices.Clone(test.outputs), Parameters: []infer.Parameter{{Name: "p"}}}
				for i := range response.Outputs {
					response.Outputs[i].Memory = r.ledger.lend("output " + response.Outputs[i].Name)
				}
				return response
			}
			b := r.run(test.requests...)
			for i, a := range b.tasks {
				if len(a.responses) != 1 || !a.responses[0].Final {
					t.Fatalf("task %d: got %+v, want one final response", i, a.responses)
				}
				got := a.responses[0]
				if test.err != "" {
					if got.Err == nil || got.Err.Message != test.err || got.Err.Code != infer.Internal || len(got.Outputs) > 0 {
						t.Errorf("task %d: got %+v, want the error %q", i, got, test.err)
					}
					continue
				}
				if got.Err != nil || !sameTensors(got.Outputs, test.want[i]) {
					t.Errorf("task %d: got %v %+v\nwant %+v", i, got.Err, got.Outputs, test.want[i])
				}
				if len(got.Parameters) != 1 {
					t.Errorf("task %d: got the parameters %+v", i, got.Parameters)
				}
			}
			r.release(b)
		})
	}
}

// TestSplitIsByView checks that the clients' outputs are views of the model's output, each with its
// own reference.
func TestSplitIsByView(t *testing.T) {
	r := newFixture(t, "", nil)
	x := func() *infer.Request { return request(ints("X", dims(1), 1)) }
	b := r.run(x(), x(), x())
	data := bytes.Repeat([]byte{7}, 3<<20)
	r.model.open[0].Send(&infer.Response{Final: true, Outputs: []infer.Tensor{
		{Name: "Y", DataType: infer.Uint8, Shape: dims(3, 1<<20), Data: data, Memory: r.ledger.lend("Y")},
	}})
	memory := r.ledger.all[0]
	for i, a := range b.tasks {
		if got := a.responses[0].Outputs[0].Data; &got[0] != &data[i<<20] || cap(got) != 1<<20 {
			t.Errorf("task %d has no view of the output", i)
		}
		if memory.refs != 3-i {
			t.Errorf("%d references, want %d", memory.refs, 3-i)
		}
		a.responses[0].Release()
		a.responses = nil
	}
	r.release(b)
}

// TestTrimmedOutputsAreCharged checks that trimmed outputs are copied into memory of the Allocator,
// and that every client gets its error.
func TestTrimmedOutputsAreCharged(t *testing.T) {
	for _, limit := range []int{0, 5000} {
		r := newFixture(t, `
input { name: "X" data_type: TYPE_STRING dims: [ -1 ] allow_ragged_batch: true }
output { name: "Y" data_type: TYPE_STRING dims: [ -1 ] }
output { name: "Z" data_type: TYPE_STRING dims: [ -1 ] }
batch_output { target_name: [ "Y", "Z" ] kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }
parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }`, nil)
		long, longer := strings.Repeat("a", 4200), strings.Repeat("b", 6000)
		x := func(n int64) *infer.Request {
			return request(texts("X", dims(1, n), make([]string, n)...))
		}
		only := x(2)
		only.Outputs = []string{"Z"}
		b := r.run(x(1), only, x(3))
		r.ledger.limit = limit
		y := texts("Y", dims(3, 3), long, "", "", longer, "", "", "", "", "")
		y.Memory = r.ledger.lend("Y")
		z := texts("Z", dims(3, 3), "", "", "", "c", "d", "", "", "", "")
		z.Memory = r.ledger.lend("Z")
		r.model.open[0].Send(&infer.Response{Final: true, Outputs: []infer.Tensor{y, z}})
		for i, a := range b.tasks {
			got := a.responses[0]
			if limit > 0 {
				want := infer.Errorf(infer.Unavailable, "output 'Y' of model 'm' cannot be split for 3 requests: no memory today")
				if got.Err == nil || *got.Err != *want {
					t.Errorf("task %d: got %+v, want %q", i, got, want)
				}
			} else if got.Err != nil {
				t.Errorf("task %d: got %v", i, got.Err)
			}
		}
		if limit == 0 {
			if got := b.tasks[0].responses[0].Outputs[0]; string(got.Data) != string(testkit.TensorData(long)) || got.Memory == nil || got.Memory == y.Memory {
				t.Errorf("got %d bytes in %v, want a copy in memory that was lent", len(got.Data), got.Memory)
			}
			if got := b.tasks[1].responses[0].Outputs; len(got) != 1 || string(got[0].Data) != string(testkit.TensorData("c", "d")) || got[0].Memory != nil {
				t.Errorf("got %+v, want a small copy", got)
			}
		}
		r.release(b)
	}
}

// TestErrorsOfTheModel checks that every client gets the model's error, as a separate value.
func TestErrorsOfTheModel(t *testing.T) {
	r := newFixture(t, "", func(*infer.Request) *infer.Response {
		return &infer.Response{Final: true, Err: infer.Errorf(infer.Unsupported, "not these")}
	})
	r.model.report.Failed = []int{0}
	b := r.run(request(ints("X", dims(1), 1)), request(ints("X", dims(1), 1)))
	for _, a := range b.tasks {
		if len(a.responses) != 1 || a.responses[0].Err == nil || *a.responses[0].Err != (infer.Error{Code: infer.Unsupported, Message: "not these"}) {
			t.Errorf("got %+v", a.responses)
		}
	}
	if b.tasks[0].responses[0].Err == b.tasks[1].responses[0].Err {
		t.Error("two clients share one error")
	}
	if len(b.reports) != 1 || !slices.Equal(b.reports[0].Failed, []int{0, 1}) {
		t.Errorf("reports: %+v", b.reports)
	}
	r.release(b)
}

// TestLateFinalReachesEveryTask checks that every client gets the final flag if a response sender
// sends it after the response.
func TestLateFinalReachesEveryTask(t *testing.T) {
	r := newFixture(t, "", nil)
	b := r.run(request(ints("X", dims(1), 1)), request(ints("X", dims(1), 1)))
	r.model.open[0].Send(&infer.Response{Outputs: []infer.Tensor{ints("Y", dims(2), 1, 2)}})
	r.model.open[0].Send(&infer.Response{Empty: true, Final: true})
	for i, a := range b.tasks {
		if len(a.responses) != 2 || a.responses[0].Final || !a.responses[1].Final || !a.responses[1].Empty {
			t.Fatalf("got %+v", a.responses)
		}
		if want := []infer.Tensor{ints("Y", dims(1), int32(i+1))}; !sameTensors(a.responses[0].Outputs, want) {
			t.Errorf("got %+v", a.responses[0].Outputs)
		}
	}
	r.release(b)
}
