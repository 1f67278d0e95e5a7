package process_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// outcome is the result of a batch with one request.
type outcome struct {
	report backend.Report
	answer *infer.Response // nil if the batch was returned
}

// depth is the number of batches that a process may have: one in execution and one ahead.
const depth = 2

// handOver executes a batch with one request.
func handOver(in *process.Instance, request *infer.Request) <-chan outcome {
	result := make(chan outcome, 1) // one value
	var o outcome
	task := &backend.Task{Context: context.Background(), Request: request}
	task.Send = func(answer *infer.Response) {
		o.answer = answer
		result <- o
	}
	in.Execute(&backend.Batch{Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) {
		o.report = report
		if report.Refused {
			result <- o
		}
	}})
	return result
}

func waitFor(t *testing.T, result <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-result:
		return o
	case <-time.After(patience):
		t.Fatal("a batch is not answered")
		return outcome{}
	}
}

// TestBatchesAheadAreExecutedInTurn hands over batches while another is executed, and expects them
// to be executed in order.
func TestBatchesAheadAreExecutedInTurn(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("copies", infer.Uint8)
	in := m.instance()
	for round := range 200 {
		size := []int{3, 4096, 50_000}[round%3]
		requests := make([]*infer.Request, depth+1)
		results := make([]<-chan outcome, len(requests))
		for i := range requests {
			requests[i] = &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, testkit.Pattern(size, round+i))}}
			results[i] = handOver(in, requests[i])
		}
		last := int64(0)
		for i := range depth {
			o := waitFor(t, results[i])
			if o.report.Refused || o.answer.Err != nil || !bytes.Equal(o.answer.Outputs[0].Data, requests[i].Inputs[0].Data) {
				t.Fatalf("round %d, batch %d: %+v, %+v", round, i, o.report, o.answer)
			}
			if o.report.Start < last || o.report.ComputeStart < o.report.Start || o.report.ComputeEnd < o.report.ComputeStart {
				t.Errorf("round %d, batch %d: times %+v after %d", round, i, o.report, last)
			}
			last = o.report.ComputeEnd
			o.answer.Release()
		}
		// A batch beyond depth is refused, unless an earlier response has made room.
		if o := waitFor(t, results[depth]); !o.report.Refused {
			o.answer.Release()
		}
		for i := range requests {
			requests[i].Inputs[0].Release()
		}
	}
}

// TestAheadOfALoss loses the stub during one batch and expects the batch ahead to be returned.
func TestAheadOfALoss(t *testing.T) {
	r := newFixture(t, nil)
	m := r.start("dies_in_execute", infer.Uint8)
	for _, way := range []string{"SIGKILL", "exit 0"} {
		m.wantGood()
		in := m.instance()
		request := r.small()
		request.ID = way
		first, second := handOver(in, request), handOver(in, r.small())
		if o := waitFor(t, first); o.report.Refused || o.answer.Err == nil || o.answer.Err.Message != "Stub process 'dies_in_execute_0_0' is not healthy." {
			t.Errorf("%s: the first batch: %+v, %+v", way, o.report, o.answer)
		}
		if o := waitFor(t, second); !o.report.Refused {
			t.Errorf("%s: the batch that the stub had not looked at: %+v, %+v, want it back", way, o.report, o.answer)
		}
		m.wantGoodAtLast()
	}
}
