package process_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/shm"
)

func wantSame(t *testing.T, what string, got *infer.Tensor, want *infer.Tensor) {
	t.Helper()
	if got.DataType != want.DataType || infer.ShapeString(got.Shape) != infer.ShapeString(want.Shape) {
		t.Errorf("%s: got %s%s, want %s%s", what, got.DataType, infer.ShapeString(got.Shape), want.DataType, infer.ShapeString(want.Shape))
	}
	if !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%s: got %d bytes that differ from the %d wanted", what, len(got.Data), len(want.Data))
	}
}

// TestTensorsThereAndBack sends tensors of every type and size through real stubs of every Python,
// both forked and started directly, and checks that they return unchanged.
func TestTensorsThereAndBack(t *testing.T) {
	for _, interpreter := range testkit.Pythons(t) {
		for _, start := range []string{"template", "program"} {
			t.Run(interpreter.String()+"/"+start, func(t *testing.T) {
				r := newFixtureWith(t, interpreter.Path, func(c *python.Config) { c.NoTemplate = start == "program" })
				for _, model := range []string{"identity", "copies"} {
					t.Run(model, func(t *testing.T) { thereAndBack(t, r.in(t), model) })
				}
			})
		}
	}
}

func thereAndBack(t *testing.T, r *fixture, name string) {
	types := []infer.DataType{
		infer.Bool, infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64, infer.Int8, infer.Int16, infer.Int32,
		infer.Int64, infer.FP16, infer.FP32, infer.FP64, infer.Bytes,
	}
	m := r.start(name, types...)
	defer m.close()
	check := func(what string, tensors ...infer.Tensor) {
		t.Helper()
		request := &infer.Request{ID: what, Inputs: tensors}
		response := m.mustInfer(request)
		if len(response.Outputs) != len(tensors) {
			t.Errorf("%s: got %d outputs, want %d", what, len(response.Outputs), len(tensors))
		} else {
			for i := range tensors {
				if want := "OUT" + tensors[i].Name[2:]; response.Outputs[i].Name != want {
					t.Errorf("%s: got output %q, want %q", what, response.Outputs[i].Name, want)
				}
				wantSame(t, what, &response.Outputs[i], &tensors[i])
			}
		}
		response.Release()
		releaseInputs(request)
	}

	// Every fixed-size type: a scalar, an empty tensor, within the frame, in a block.
	for i, d := range types[:12] {
		for _, shape := range [][]int64{{}, {0}, {3, 0, 2}, {1, 5}, {4096}, {100, 700}} {
			n, ok := infer.ByteSize(d, shape)
			if !ok {
				t.Fatalf("no size of %s%v", d, shape)
			}
			data := testkit.Pattern(int(n), i)
			if d == infer.Bool {
				for j := range data {
					data[j] &= 1
				}
			}
			check(fmt.Sprintf("%s%v", d, shape), r.tensor(fmt.Sprintf("IN%d", i), d, shape, data))
		}
	}
	for _, n := range []int{1, 4095, 4096, 4097, 64 << 10, 1 << 20, 1<<20 + 13, 16 << 20} {
		check(fmt.Sprintf("%d bytes", n), r.tensor("IN1", infer.Uint8, []int64{int64(n)}, testkit.Pattern(n, 3)))
	}
	long := make([]string, 1000)
	for i := range long {
		long[i] = string(testkit.Pattern(i, i))
	}
	check("strings", r.tensor("IN12", infer.Bytes, []int64{2, 2}, testkit.TensorData("a", "", "xyz\x00", "\xff\xfe")))
	check("strings of one length", r.tensor("IN12", infer.Bytes, []int64{3}, testkit.TensorData("abc", "d\x00\x00", "\x00\x00\x00")))
	check("no strings", r.tensor("IN12", infer.Bytes, []int64{0}, nil))
	check("a string", r.tensor("IN12", infer.Bytes, []int64{}, testkit.TensorData("alone")))
	check("long strings", r.tensor("IN12", infer.Bytes, []int64{10, 100}, testkit.TensorData(long...)))
	var all []infer.Tensor
	for i, d := range types[:12] {
		all = append(all, r.tensor(fmt.Sprintf("IN%d", i), d, []int64{1, 1000}, bytes.Repeat([]byte{1}, 1000*d.Size())))
	}
	check("all at once", all...)

	// A batch with some tensors in the frame and some in blocks.
	var requests []*infer.Request
	for i := range 8 {
		n := []int{16, 4096, 5000, 1 << 20}[i%4]
		requests = append(requests, &infer.Request{
			ID: fmt.Sprint(i), Inputs: []infer.Tensor{r.tensor("IN1", infer.Uint8, []int64{1, int64(n)}, testkit.Pattern(n, i))},
		})
	}
	responses, report := m.infer(requests...)
	if report.Err != nil || !report.Executed {
		t.Errorf("batch: got report %+v, want one of an executed batch", report)
	}
	if report.Start > report.ComputeStart || report.ComputeStart > report.ComputeEnd || report.ComputeEnd > report.End {
		t.Errorf("batch: times of %+v are not in order", report)
	}
	for i, response := range responses {
		if response.Err != nil || len(response.Outputs) != 1 || !response.Final {
			t.Fatalf("batch, response %d: got %+v, want one output and Final", i, response)
		}
		wantSame(t, fmt.Sprintf("batch, response %d", i), &response.Outputs[0], &requests[i].Inputs[0])
		response.Release()
	}
	releaseInputs(requests...)
}

// TestNoBellIsMissedUnderLoad drives several instances at once with requests of all sizes, spinning
// for some responses and sleeping for others. A missed bell would hang the test.
func TestNoBellIsMissedUnderLoad(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.copyModel("copies"), modelConfig("copies", 4, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 1000
	if !testkit.Long() {
		rounds = 100
	}
	var drivers sync.WaitGroup
	for number, instance := range m.model.Instances() {
		drivers.Go(func() {
			in := instance.(*process.Instance)
			random := rand.New(rand.NewPCG(1, uint64(number)))
			answers := make(chan *infer.Response, 8)
			done := make(chan struct{}, 1)
			for round := range rounds {
				batch := &backend.Batch{Done: func(*backend.Batch, backend.Report) { done <- struct{}{} }}
				want := make(map[string][]byte)
				var requests []*infer.Request
				for i := range 1 + random.IntN(3) {
					size := []int{1, 100, 4096, 5000, 70_000, 300_000}[random.IntN(6)]
					request := &infer.Request{
						Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(size)}, testkit.Pattern(size, round+i))},
					}
					requests = append(requests, request)
					task := &backend.Task{Context: context.Background(), Request: request}
					task.Send = func(answer *infer.Response) {
						answer.ID = fmt.Sprint(i)
						answers <- answer
					}
					want[fmt.Sprint(i)] = request.Inputs[0].Data
					batch.Tasks = append(batch.Tasks, task)
				}
				in.Execute(batch)
				if round%2 == 0 {
					in.Await(done)
				}
				for range batch.Tasks {
					select {
					case answer := <-answers:
						if answer.Err != nil || !bytes.Equal(answer.Outputs[0].Data, want[answer.ID]) {
							t.Errorf("instance %d, round %d: got error %v or other bytes", number, round, answer.Err)
						}
						answer.Release()
					case <-time.After(patience):
						t.Errorf("instance %d, round %d: no answer", number, round)
						return
					}
				}
				<-done
				releaseInputs(requests...)
			}
		})
	}
	drivers.Wait()
}

// TestRefusedResponsesLeaveNothing refuses more responses than a stub may have outputs outstanding,
// and checks that it still responds.
func TestRefusedResponsesLeaveNothing(t *testing.T) {
	r := newFixture(t, nil)
	m, err := r.open(r.writeModel("refused", `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        parameters = {"n": 2**63} if requests[0].request_id() != "good" else {"n": 2**63 - 1}
        output = pb_utils.Tensor("OUT0", np.zeros((1, 8192), np.uint8))
        return [pb_utils.InferenceResponse([output], parameters=parameters) for _ in requests]
`), modelConfig("refused", 1, infer.Uint8))
	if err != nil {
		t.Fatal(err)
	}
	for range shm.ReturnRingSlots + 100 {
		responses, _ := m.infer(r.small())
		if e := responses[0].Err; e == nil || e.Code != infer.Internal || e.Message != "Unsupported value type on parameters" {
			t.Fatalf("got error %v, want that of the parameters", e)
		}
	}
	request := r.small()
	request.ID = "good"
	response := m.mustInfer(request)
	if len(response.Outputs) != 1 || len(response.Parameters) != 1 || response.Parameters[0].Int != math.MaxInt64 {
		t.Errorf("good request: got response %+v", response)
	}
	response.Release()
}
