package stacked

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

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
