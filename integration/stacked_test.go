package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// stackedModel doubles its input and reports how it received it. The values of the input select
// other actions.
const stackedModel = `
import json
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.ragged = args["model_name"] in ("ragged", "padded")

    def execute(self, requests):
        return [self.answer(request, len(requests)) for request in requests]

    def answer(self, request, requests):
        inputs = {t.name(): t.as_numpy() for t in request.inputs()}
        values = inputs["INPUT"]
        assert requests == 1 and ("OFFSETS" in inputs) == self.ragged  # warm-up is no exception
        acts = set(values.reshape(-1)[values.reshape(-1) < 0].astype(int).tolist())
        if -1 in acts:
            raise ValueError("as asked for")
        if -2 in acts:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("not these", pb_utils.TritonError.UNSUPPORTED))
        if -3 in acts:
            os._exit(3)
        if -4 in acts:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", values[1:])])
        if -5 in acts:
            tensor = pb_utils.Tensor("INPUT", np.array([[1]], np.float32))
            call = pb_utils.InferenceRequest(
                model_name="stacked", inputs=[tensor], requested_output_names=["OUTPUT"])
            raise pb_utils.TritonModelException(call.exec().error().message())
        rows = len(inputs["TEXT"]) if "TEXT" in inputs else len(values)
        seen = {
            "requests": requests,
            "shapes": {name: list(array.shape) for name, array in inputs.items()},
            "parameters": json.loads(request.parameters()),
            "id": request.request_id(),
            "outputs": sorted(request.requested_output_names()),
            "extra": {name: array.tolist() for name, array in inputs.items() if name not in ("INPUT", "TEXT")},
            "input": values.tolist() if values.size < 100 else [],
        }
        outputs = [pb_utils.Tensor("OUTPUT", values * np.float32(2))]
        if "TEXT" in inputs:
            outputs.append(pb_utils.Tensor("LOUD", np.char.upper(inputs["TEXT"].astype(np.bytes_)).astype(np.object_)))
            outputs.append(pb_utils.Tensor("SEEN", np.array([[json.dumps(seen)]] * rows, np.object_)))
        return pb_utils.InferenceResponse(outputs)
`

// patientModel waits until its clients have disconnected.
const patientModel = `
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        mark = pb_utils.get_input_tensor_by_name(requests[0], "TEXT").as_numpy()[0, 0].decode()
        open(mark + ".begun", "w").close()
        while not requests[0].is_cancelled() and not os.path.exists(mark + ".enough"):
            time.sleep(0.01)
        said = "cancelled" if requests[0].is_cancelled() else "wanted"
        open(mark + "." + said, "w").close()
        rows = len(pb_utils.get_input_tensor_by_name(requests[0], "TEXT").as_numpy())
        return [pb_utils.InferenceResponse([pb_utils.Tensor("LOUD", np.array([[said]] * rows, np.object_))])]
`

// stackedConfig returns the config of a model that waits for batches of six rows, practically
// without a time limit.
func stackedConfig(more string) string {
	return `backend: "python"
max_batch_size: 6
dynamic_batching { preferred_batch_size: [ 6 ] max_queue_delay_microseconds: 60000000 }
parameters { key: "BATCH_MODE" value { string_value: "stacked" } }
instance_group [ { count: 1 kind: KIND_CPU } ]
` + more
}

func stackedFiles() map[string]string {
	const text = `
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "LOUD" data_type: TYPE_STRING dims: [ 1 ] } ]
`
	const number = `
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
`
	const seen = `output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
`
	ragged := strings.Replace(number, "[ -1 ] }", "[ -1 ] allow_ragged_batch: true }", 1) + `
batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUTPUT" source_input: "INPUT" } ]
batch_input [
  { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "OFFSETS" data_type: TYPE_INT32 source_input: "INPUT" },
  { kind: BATCH_ITEM_SHAPE target_name: "LENGTHS" data_type: TYPE_INT32 source_input: "INPUT" }
]
model_warmup [ {
  name: "three rows" batch_size: 3 count: 2
  inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } }
  inputs { key: "TEXT" value { data_type: TYPE_STRING dims: [ 1 ] zero_data: true } }
} ]
`
	const pad = `
parameters { key: "BATCH_RAGGED" value { string_value: "pad" } }
parameters { key: "BATCH_PAD_VALUE" value { string_value: "0.5" } }
`
	return map[string]string{
		"stacked/config.pbtxt": stackedConfig(number),
		"stacked/1/model.py":   stackedModel,
		"told/config.pbtxt":    stackedConfig(number + text + seen),
		"told/1/model.py":      stackedModel,
		"ragged/config.pbtxt":  stackedConfig(ragged + text + seen),
		"ragged/1/model.py":    stackedModel,
		"padded/config.pbtxt":  stackedConfig(ragged + text + seen + pad),
		"padded/1/model.py":    stackedModel,
		"patient/config.pbtxt": stackedConfig(text),
		"patient/1/model.py":   patientModel,
	}
}

var memoryMetric = regexp.MustCompile(`(?m)^nereid_request_memory_bytes (\S+)$`)

// TestStackedModelsGetOneRequest checks that models receive each batch as one request, and that its
// memory is released.
func TestStackedModelsGetOneRequest(t *testing.T) {
	testkit.Story(t)
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			s := start(t, python.Path, writeFiles(t, stackedFiles()))
			s.runClient("stacked.py", filepath.Join(t.TempDir(), "mark"))
			// All memory of stacked batches must be released.
			s.until("rid of memory for requests", func() bool {
				response, err := http.Get("http://127.0.0.1:" + strconv.Itoa(s.metrics) + "/metrics")
				if err != nil {
					return false
				}
				defer response.Body.Close()
				text, err := io.ReadAll(response.Body)
				if err != nil {
					return false
				}
				match := memoryMetric.FindSubmatch(text)
				if match == nil {
					t.Fatal("there is no metric of the memory")
				}
				bytes, err := strconv.ParseFloat(string(match[1]), 64)
				return err == nil && bytes <= 1<<20
			})
		})
	}
}

// TestStackedMemoryIsBounded checks that stacked batches are charged to the server's memory
// account. A batch that exceeds it must fail, and later ones must succeed.
func TestStackedMemoryIsBounded(t *testing.T) {
	const number = `
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
`
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"stacked/config.pbtxt": strings.ReplaceAll(stackedConfig(number), "6", "2"),
		"stacked/1/model.py":   stackedModel,
	}), "--request-memory-byte-size=4000000")
	// The two requests are executed together.
	ask := func(elements int) (statuses [2]int, bodies [2]string) {
		head := fmt.Sprintf(`{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,%d],"parameters":{"binary_data_size":%d}}],"outputs":[{"name":"OUTPUT","parameters":{"binary_data":true}}]}`,
			elements, 4*elements)
		header := map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(head))}
		body := append([]byte(head), make([]byte, 4*elements)...)
		var both sync.WaitGroup
		for i := range statuses {
			both.Go(func() {
				var err error
				if statuses[i], bodies[i], err = s.try("POST", "/v2/models/stacked/infer", header, body); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		return statuses, bodies
	}
	statuses, bodies := ask(250_000)
	for i, body := range bodies {
		if statuses[i] != http.StatusServiceUnavailable ||
			!strings.HasPrefix(errorOf(t, body), "batch of 2 requests to model 'stacked' cannot be stacked: request needs 2000000 bytes of memory, but ") {
			t.Errorf("one of two of 1 MB: %d %.300q, want 503", statuses[i], body)
		}
	}
	for range 5 { // all charges must have been released
		if statuses, bodies := ask(50_000); statuses != [2]int{200, 200} {
			t.Fatalf("two of 200 kB: %v %.300q", statuses, bodies)
		}
	}
}

// TestUnstackableModelsAreRefused checks that models whose config does not allow stacked batches
// fail to load with the reason.
func TestUnstackableModelsAreRefused(t *testing.T) {
	files := map[string]string{
		"stream/config.pbtxt": stackedConfig("model_transaction_policy { decoupled: true }"),
		"stream/1/model.py":   stackedModel,
		"single/config.pbtxt": "backend: \"python\"\nparameters { key: \"BATCH_MODE\" value { string_value: \"stacked\" } }\n",
		"single/1/model.py":   stackedModel,
		"other/config.pbtxt":  "backend: \"python\"\nparameters { key: \"BATCH_MODE\" value { string_value: \"mine\" } }\n",
		"other/1/model.py":    stackedModel,
	}
	s := launch(t, testkit.Python(t).Path, writeFiles(t, files), "--exit-on-error=false")
	s.until("live", func() bool {
		status, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil && status == http.StatusOK && s.index()["other"].State == "READY"
	})
	s.until("decided", func() bool {
		return s.index()["stream"].State == "UNAVAILABLE" && s.index()["single"].State == "UNAVAILABLE"
	})
	for model, want := range map[string]string{
		"stream": "model 'stream' asks for stacked batches: a decoupled model cannot have them",
		"single": "model 'single' asks for stacked batches: they need dynamic_batching",
	} {
		if got := s.index()[model].Reason; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", model, got, want)
		}
	}
	if want := `parameter BATCH_MODE of model 'other' is 'mine', which is unknown; want 'stacked'`; !testkit.Within(startLimit, func() bool {
		return strings.Contains(strings.ReplaceAll(s.log.String(), `\\`, `\`), want)
	}) {
		t.Errorf("the log does not contain %s", want)
	}
}
