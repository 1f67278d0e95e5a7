package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const countedConfig = `
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`

// countedModel acts according to its input. Numbers from 0 are delays in milliseconds.
const countedModel = `
import time
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

def answer(value, tensor):
    if value == -1 or value == -5:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("bad one"))
    if value == -2:
        raise ValueError("all bad")
    time.sleep(max(value, 0) / 1000)
    return pb_utils.InferenceResponse([pb_utils.Tensor("NONE" if value == -3 else "OUT", tensor)])

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = request.inputs()[0].as_numpy()
            value = int(tensor.flat[0])
            response = answer(value, tensor)
            if value in (-4, -5):
                request.get_response_sender().send(response, flags=FINAL)
                response = None
            responses.append(response)
        return responses
`

const countedDecoupledModel = `
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            tensor = request.inputs()[0].as_numpy()
            value, sender = int(tensor.flat[0]), request.get_response_sender()
            if value == -2:
                raise ValueError("all bad")
            if value == -1:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("bad one")), flags=FINAL)
                continue
            for _ in range(value):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]))
            sender.send(flags=FINAL)
`

const countedCaller = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(model_name="cached", requested_output_names=["OUT"], inputs=request.inputs())
            responses.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
        return responses
`

// countedRounds executes a request as often as its input says.
const countedRounds = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.rounds = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = request.inputs()[0].as_numpy()
            self.rounds += 1
            if self.rounds < abs(tensor.flat[0]):
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                responses.append(None)
                continue
            self.rounds = 0
            if tensor.flat[0] < 0:
                raise ValueError("all bad")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]))
        return responses
`

// countedEnsemble returns the config of an ensemble of two models in sequence.
func countedEnsemble(first, second, more string) string {
	step := func(model, from, to string) string {
		return `{ model_name: "` + model + `" model_version: -1 input_map { key: "IN" value: "` + from + `" } output_map { key: "OUT" value: "` + to + `" } }`
	}
	return strings.Replace(countedConfig, `backend: "python"`, `platform: "ensemble"`, 1) +
		"ensemble_scheduling { step [ " + step(first, "IN", "between") + ", " + step(second, "between", "OUT") + " ] }\n" + more
}

func countedRepository(t *testing.T) string {
	one, two := "instance_group [ { count: 1 kind: KIND_CPU } ]\n", "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
	return writeFiles(t, map[string]string{
		"plain/config.pbtxt":     countedConfig + one,
		"plain/1/model.py":       countedModel,
		"batched/config.pbtxt":   countedConfig + one + "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 1000 }\n",
		"four/config.pbtxt":      countedConfig + one + "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 60000000 }\n",
		"four/1/model.py":        countedModel,
		"batched/1/model.py":     countedModel,
		"decoupled/config.pbtxt": countedConfig + one + "model_transaction_policy { decoupled: true }\n",
		"decoupled/1/model.py":   countedDecoupledModel,
		"cached/config.pbtxt":    countedConfig + two + "response_cache { enable: true }\n",
		"cached/1/model.py":      countedModel,
		"queued/config.pbtxt": strings.Replace(countedConfig, "max_batch_size: 8", "max_batch_size: 1", 1) + one +
			"dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 allow_timeout_override: true max_queue_size: 3 } }\n",
		"queued/1/model.py":   countedModel,
		"rounds/config.pbtxt": countedConfig + one + "sequence_batching { iterative_sequence: true }\n",
		"rounds/1/model.py":   countedRounds,
		"kept/config.pbtxt":   countedEnsemble("plain", "batched", "response_cache { enable: true }\n"),
		"kept/1/empty":        "",
		"steps/config.pbtxt":  countedEnsemble("cached", "cached", ""),
		"steps/1/empty":       "",
		"caller/config.pbtxt": countedConfig + one,
		"caller/1/model.py":   countedCaller,
	})
}

var countedFlags = []string{"--cache-config=local,size=1048576", "--metrics-config=summary_latencies=true"}

// counted runs statistics.py and returns the lines of its output, one per step.
func (s *runningServer) counted(more ...string) []string {
	s.t.Helper()
	script := exec.Command(clientPython(s.t), append([]string{
		runScript, filepath.Join("testdata", "statistics.py"), fmt.Sprintf("127.0.0.1:%d", s.http), fmt.Sprintf("127.0.0.1:%d", s.grpc), fmt.Sprint(s.metrics),
	}, more...)...)
	var complaint strings.Builder
	script.Stderr = &complaint
	output, err := script.Output()
	if err != nil {
		s.t.Fatalf("statistics.py: %v\n%s%s", err, output, complaint.String())
	}
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

// compareSteps compares the output with testdata/statistics.txt, which is the output for a real
// Triton.
func compareSteps(t *testing.T, got []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/statistics.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Fatalf("got %d steps, want %d", len(got), len(want))
		}
		if got[i] != want[i] {
			var step struct{ Step, Model string }
			_ = json.Unmarshal([]byte(want[i]), &step)
			t.Errorf("%s, %s:\ngot  %s\nwant %s", step.Model, step.Step, got[i], want[i])
		}
	}
}

// TestStatisticsCountEveryKindOfRequest checks every field of the statistics over both protocols,
// and the metrics, after every kind of request. They must be the same as a real Triton's.
func TestStatisticsCountEveryKindOfRequest(t *testing.T) {
	testkit.Story(t)
	pythons := testkit.Pythons(t)
	s := start(t, pythons[0].Path, countedRepository(t), countedFlags...)
	compareSteps(t, s.counted())
}

// TestStatisticsOnTriton checks testdata/statistics.txt against a real Triton.
func TestStatisticsOnTriton(t *testing.T) {
	s := startTriton(t, yardstick(t), countedRepository(t), countedFlags...)
	s.waitReady()
	compareSteps(t, s.counted("triton"))
}
