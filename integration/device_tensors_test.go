package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/internal/testkit/fakecuda"
)

const deviceConfig = `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
`

// deviceHead is the beginning of models with outputs on a device. The outputs have N elements 0, 1,
// 2 …, plus a constant.
const deviceHead = `
import sys
sys.path.append(%q)
import numpy as np
import triton_python_backend_utils as pb_utils
from producer import OnDevice, new_stream, place


def on_device(name, n, plus=0, device=0, stream=None):
    return pb_utils.Tensor.from_dlpack(name, OnDevice(np.arange(n, dtype=np.float32) + plus, place(device), stream=stream))


def wanted(request):
    return int(request.inputs()[0].as_numpy()[0])

`

var deviceModels = map[string]string{
	"single": `
class TritonPythonModel:
    def initialize(self, args):
        self.stream = new_stream(place(1))

    def execute(self, requests):
        tensors = [on_device("OUT", wanted(r), 1, 1, self.stream) for r in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in tensors]
`,
	"stream": `
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            for k in range(3):
                sender.send(pb_utils.InferenceResponse([on_device("OUT", wanted(r), k, k % 2)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`,
	"twice": `
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            x = r.inputs()[0].as_numpy()
            assert r.inputs()[0].is_cpu()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x * 2)]))
        return responses
`,
	"caller": `
import asyncio


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for r in requests:
            n = wanted(r)
            ask = pb_utils.InferenceRequest(
                model_name="twice", inputs=[on_device("IN", n, 0, 1)], requested_output_names=["OUT"]
            )
            answers = [ask.exec(), await ask.async_exec()]
            for answer in answers:
                if answer.has_error():
                    raise pb_utils.TritonModelException(answer.error().message())
            one, two = [answer.output_tensors()[0].as_numpy() for answer in answers]
            assert (one == two).all()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", OnDevice(one + two))]))
        return responses
`,
}

// onDevices starts a server whose models have tensors on devices, and returns a function that reads
// the fake driver's counts.
func onDevices(t *testing.T, python testkit.Interpreter, environment ...string) (*runningServer, func() fakecuda.Counts) {
	t.Helper()
	producer := filepath.Join(testkit.Root(t), "stub", "tests")
	files := map[string]string{}
	for name, source := range deviceModels {
		files[name+"/config.pbtxt"] = deviceConfig
		files[name+"/1/model.py"] = fmt.Sprintf(deviceHead, producer) + source
	}
	files["stream/config.pbtxt"] += "model_transaction_policy { decoupled: true }"
	files["twice/config.pbtxt"] = strings.NewReplacer(`"N"`, `"IN"`, "TYPE_INT32 dims: [ 1 ]", "TYPE_FP32 dims: [ -1 ]").Replace(deviceConfig)
	state := filepath.Join(t.TempDir(), "counts")
	program := append([]string{"env"}, onDevice(t, state, environment...)...)
	s := launchBehind(t, program, python.Path, writeFiles(t, files))
	s.waitReady()
	return s, func() fakecuda.Counts { return fakecuda.ReadCounts(t, state) }
}

// outputs requests n elements from a model and returns the outputs of its responses.
func (s *runningServer) outputs(model, method string, n int) (status int, all [][]float32, text string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[%d]}]}`, n)
	if method != "infer" {
		body = fmt.Sprintf(`{"N":%d}`, n)
	}
	status, text = s.request("POST", "/v2/models/"+model+"/"+method, body)
	if status != http.StatusOK {
		return status, nil, errorOf(s.t, text)
	}
	if method == "infer" {
		var answer struct{ Outputs []struct{ Data []float32 } }
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Outputs) != 1 {
			s.t.Fatalf("%s: got %.200s (error %v), want one output", model, text, err)
		}
		return status, [][]float32{answer.Outputs[0].Data}, text
	}
	for line := range strings.SplitSeq(text, "\n") {
		event, isEvent := strings.CutPrefix(line, "data: ")
		if !isEvent {
			continue
		}
		var answer struct{ Out []float32 }
		if err := json.Unmarshal([]byte(event), &answer); err != nil {
			s.t.Fatalf("%s: got %.200s: %v", model, event, err)
		}
		all = append(all, answer.Out)
	}
	return status, all, text
}

// wantSequence checks that got has n elements of the form factor × i + plus.
func wantSequence(t *testing.T, what string, got []float32, n int, factor, plus float32) {
	t.Helper()
	if len(got) != n {
		t.Errorf("%s: got %d elements, want %d", what, len(got), n)
		return
	}
	for i, value := range got {
		if want := factor*float32(i) + plus; value != want {
			t.Errorf("%s: element %d is %v, want %v", what, i, value, want)
			return
		}
	}
}

// TestTensorsOnDevicesAreAnswered returns device tensors to clients, in streams and from BLS
// requests. Each must be copied to the host once, by the process that owns it.
func TestTensorsOnDevicesAreAnswered(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s, counts := onDevices(t, python)
			copied, size := uint64(0), uint64(0)
			for _, n := range []int{10, 1025, 30_000} {
				_, all, text := s.outputs("single", "infer", n)
				if len(all) != 1 {
					t.Fatalf("single: got %.200s", text)
				}
				wantSequence(t, "single", all[0], n, 1, 1)

				_, all, text = s.outputs("stream", "generate_stream", n)
				if len(all) != 3 {
					t.Fatalf("stream: got %.200s, want three responses", text)
				}
				for k, got := range all {
					wantSequence(t, "stream", got, n, 1, float32(k))
				}

				_, all, text = s.outputs("caller", "infer", n)
				if len(all) != 1 {
					t.Fatalf("caller: got %.200s", text)
				}
				wantSequence(t, "caller", all[0], n, 4, 0)
				// These are one output, three responses, the input of two requests, which is copied
				// once, and one output.
				copied += 1 + 3 + 1 + 1
				size += 6 * 4 * uint64(n)
			}
			// The input of the first BLS request is copied on the device. The copier then copies it
			// to the host, because the caller does not know yet that the called model needs it
			// there.
			copied, size = copied+1, size+40
			got := counts()
			if realDevice() {
				return // a real driver counts nothing
			}
			if got.Calls["cuMemcpyDtoH_v2"] != copied || got.Calls["bytes_to_host"] != size {
				t.Errorf("%d bytes were copied to the host in %d steps, want %d in %d", got.Calls["bytes_to_host"],
					got.Calls["cuMemcpyDtoH_v2"], size, copied)
			}
			if got.Calls["bytes_on_device"] != 40 {
				t.Errorf("%d bytes were copied on a device, want 40", got.Calls["bytes_on_device"])
			}
			for _, mistake := range []string{"bytes_between_devices", "double_free", "without_context", "wrong_context", "after_fork"} {
				if got.Calls[mistake] != 0 {
					t.Errorf("%s: %d, want none", mistake, got.Calls[mistake])
				}
			}
			// The caller's process keeps a pool.
			s.until("rid of all device memory", func() bool { return counts().Live(fakecuda.Allocation) <= 1 })
		})
	}
}

// TestCopiesFromDevicesThatFail makes single copies fail. The request that needed the copy must get
// an error, and the others must succeed.
func TestCopiesFromDevicesThatFail(t *testing.T) {
	standInAlone(t, "no call of a real driver fails when a test wants it")
	s, counts := onDevices(t, testkit.Python(t), fakecuda.Fail+"=cuMemcpyDtoH_v2:2=700")
	const reason = "An error occurred while trying to load GPU buffers in the Python backend stub: failed to copy data: an illegal memory access was encountered"
	for k := range 4 {
		status, all, text := s.outputs("single", "infer", 5000)
		if k != 1 {
			if status != http.StatusOK {
				t.Fatalf("request %d: got status %d: %s", k, status, text)
			}
			wantSequence(t, "single", all[0], 5000, 1, 1)
			continue
		}
		if want := "Failed to process the request(s) for model 'single_0_0', message: " + reason; status != http.StatusInternalServerError || text != want {
			t.Errorf("request %d: got status %d: %q, want %q", k, status, text, want)
		}
	}
	// The caller's second copy is that of its own output.
	if _, _, text := s.outputs("caller", "infer", 5000); !strings.HasSuffix(text, reason) {
		t.Errorf("caller: got %q", text)
	}
	if status, _, text := s.outputs("caller", "infer", 5000); status != http.StatusOK {
		t.Errorf("caller: got status %d: %s", status, text)
	}
	// The caller's process keeps a pool.
	s.until("rid of all device memory", func() bool { return counts().Live(fakecuda.Allocation) <= 1 })
}

// TestPreferredDevicesWithoutOne checks BLS requests that prefer a device when there is no driver
// or no device. The outputs must be on the host, and nothing may be logged about it.
func TestPreferredDevicesWithoutOne(t *testing.T) {
	const source = `
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        x = requests[0].inputs()[0]
        memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0)
        ask = pb_utils.InferenceRequest(
            model_name="twice", inputs=[x], requested_output_names=["OUT"], preferred_memory=memory
        )
        one, two = [answer.output_tensors()[0] for answer in (ask.exec(), await ask.async_exec())]
        assert one.is_cpu() and two.is_cpu()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.as_numpy() + two.as_numpy())])]
`
	files := map[string]string{}
	modelFiles(files, "prefers", "IN:FP32[-1]", "OUT:FP32[-1]", "", source)
	modelFiles(files, "twice", "IN:FP32[-1]", "OUT:FP32[-1]", "", "import triton_python_backend_utils as pb_utils\n"+deviceModels["twice"])
	for _, c := range []struct {
		name string
		env  func(t *testing.T) []string
	}{
		{"no driver", func(t *testing.T) []string {
			for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64"} {
				if _, err := os.Stat(filepath.Join(dir, "libcuda.so.1")); err == nil {
					t.Skipf("there is a driver in %s", dir)
				}
			}
			return []string{"LD_LIBRARY_PATH="}
		}},
		{"no device", func(t *testing.T) []string {
			return []string{"LD_LIBRARY_PATH=" + fakecuda.Dir(t), fakecuda.Devices + "=0"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := launchBehind(t, append([]string{"env"}, c.env(t)...), testkit.Python(t).Path, writeFiles(t, files))
			s.waitReady()
			for _, n := range []int{4, 30_000} {
				s.doubled("prefers", n, 4)
			}
			if strings.Contains(s.log.String(), "BLS request prefers") {
				t.Error("the log speaks of what a request prefers")
			}
		})
	}
}
