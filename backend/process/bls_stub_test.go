package process_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/backendtest"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// runningModels is a registry of running models without schedulers: a request waits until the
// instance accepts it.
type runningModels struct {
	backend.Host
	models map[string]*running
	ended  sync.WaitGroup
}

func (n *runningModels) Target(model string, _ int64) (backend.Target, error) {
	if n.models[model] == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", model)
	}
	return &backendtest.Target{Run: n.submit}, nil
}

func (n *runningModels) submit(ctx context.Context, r *infer.Request, send infer.Sender) error {
	in := n.models[r.Model].instance()
	n.ended.Add(1)
	task := &backend.Task{Context: ctx, Request: r}
	stop := context.AfterFunc(ctx, func() { in.Cancel(task) })
	task.Send = func(response *infer.Response) {
		final := response.Final
		send(response)
		if final {
			stop()
			n.ended.Done()
		}
	}
	refused := make(chan bool, 1)
	batch := &backend.Batch{Tasks: []*backend.Task{task}, Done: func(_ *backend.Batch, report backend.Report) { refused <- report.Refused }}
	n.ended.Go(func() {
		testkit.Within(patience, func() bool {
			in.Execute(batch)
			return !<-refused
		})
	})
	return nil
}

// wantSettled checks that nothing is lent and no BLS request is left.
func (m *running) wantSettled(t *testing.T) {
	t.Helper()
	var held process.Held
	if !testkit.Within(patience, func() (alive bool) {
		held, alive = m.instance().Held()
		return alive && held == process.Held{}
	}) {
		t.Errorf("%s has %+v left, want nothing", m.instance().Name(), held)
	}
}

const callingModel = `
import gc
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def call(self, tensors):
        request = pb_utils.InferenceRequest(model_name="identity", requested_output_names=["OUT0"], inputs=tensors)
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response

    def answer(self, request):
        (given,) = request.inputs()
        how = request.request_id()
        if how == "as it is":
            return pb_utils.InferenceResponse(self.call([given]).output_tensors())
        array = given.as_numpy()
        if how == "view":
            again = self.call([pb_utils.Tensor("IN0", array[:])]).output_tensors()[0].as_numpy()
        elif how == "copy":
            again = self.call([pb_utils.Tensor("IN0", array.copy())]).output_tensors()[0].as_numpy().copy()
        elif how == "written":
            first = self.call([given]).output_tensors()[0].as_numpy()
            first += 1
            again = self.call([pb_utils.Tensor("IN0", first)]).output_tensors()[0].as_numpy()
            again -= 1
        elif how == "many":
            held = [self.call([given]) for _ in range(20)]
            again = held[-1].output_tensors()[0].as_numpy()
        elif how == "fails":
            raise ValueError("with an answer in hand", self.call([given]))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", again)])
`

// TestModelsCallModels passes tensors between stubs in every possible way, and checks that they are
// unchanged and nothing is left.
func TestModelsCallModels(t *testing.T) {
	pythons := testkit.Pythons(t)
	for _, interpreter := range []testkit.Interpreter{pythons[0], pythons[len(pythons)-1]} {
		for kind, prefix := range map[string]string{"sealed": "", "named": "nereid_test_bls_"} {
			t.Run(interpreter.String()+"/"+kind, func(t *testing.T) {
				r := newFixtureWith(t, interpreter.Path, func(c *python.Config) { c.RegionPrefix = prefix })
				host := &runningModels{}
				r.host = host
				callee := r.start("identity", infer.Uint8)
				caller, err := r.open(r.writeModel("caller", callingModel), modelConfig("caller", 1, infer.Uint8))
				if err != nil {
					t.Fatal(err)
				}
				host.models = map[string]*running{"identity": callee}
				for _, how := range []string{"as it is", "view", "copy", "written", "many"} {
					for _, n := range []int{0, 1, 4096, 4097, 100_000, 3 << 20} {
						request := &infer.Request{ID: how, Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, int64(n)}, testkit.Pattern(n, n))}}
						response := caller.mustInfer(request)
						if len(response.Outputs) != 1 || !bytes.Equal(response.Outputs[0].Data, request.Inputs[0].Data) {
							t.Errorf("%s, %d bytes: got other bytes than were sent", how, n)
						}
						if !bytes.Equal(request.Inputs[0].Data, testkit.Pattern(n, n)) {
							t.Errorf("%s, %d bytes: the request itself has been changed", how, n)
						}
						response.Release()
						releaseInputs(request)
					}
				}
				request := &infer.Request{ID: "fails", Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 100_000}, testkit.Pattern(100_000, 1))}}
				responses, _ := caller.infer(request)
				if responses[0].Err == nil {
					t.Error("a model that raises: got no error")
				}
				responses[0].Release()
				releaseInputs(request)
				caller.wantSettled(t)
				callee.wantSettled(t)
				host.ended.Wait()
			})
		}
	}
}

// TestCallsThatAreCutOff kills the calling or the called stub while tensors of both are in transit.
// Their memory is returned, and the other stub continues.
func TestCallsThatAreCutOff(t *testing.T) {
	for _, victim := range []string{"caller", "callee"} {
		t.Run(victim, func(t *testing.T) {
			r := newFixture(t, nil)
			host := &runningModels{}
			r.host = host
			callee, err := r.open(r.copyModel("waits_for_cancellation"), modelConfig("waits_for_cancellation", 1, infer.Uint8))
			if err != nil {
				t.Fatal(err)
			}
			source := bytes.ReplaceAll([]byte(callingModel), []byte(`"identity"`), []byte(`"waits_for_cancellation", request_id="wait"`))
			caller, err := r.open(r.writeModel("caller", string(source)), modelConfig("caller", 1, infer.Uint8))
			if err != nil {
				t.Fatal(err)
			}
			host.models = map[string]*running{"waits_for_cancellation": callee}
			for i := range 3 {
				request := &infer.Request{ID: []string{"as it is", "view", "copy"}[i], Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 100_000}, testkit.Pattern(100_000, 1))}}
				answered := make(chan *infer.Response, 1)
				go func() {
					responses, _ := caller.infer(request)
					answered <- responses[0]
				}()
				begun := filepath.Join(callee.dir, "1", "model.py.begun") // a batch that it has not taken would go to its successor
				testkit.Eventually(t, patience, func() bool { return exists(begun) })
				remove(t, begun)
				doomed := map[string]*running{"caller": caller, "callee": callee}[victim]
				doomed.kill()
				response := <-answered
				want := fmt.Sprintf("Stub process '%s' is not healthy.", doomed.instance().Name())
				if response.Err == nil || !bytes.Contains([]byte(response.Err.Message), []byte(want)) {
					t.Errorf("got error %v, want %q", response.Err, want)
				}
				response.Release()
				releaseInputs(request)
				host.ended.Wait() // the callee was notified of its caller's end, or died
				testkit.Eventually(t, patience, func() bool { return caller.ready() == nil && callee.ready() == nil })
			}
			caller.wantSettled(t)
			callee.wantSettled(t)
		})
	}
}
