package integration

import (
	"strings"
	"testing"
)

// plusModel returns its input, twice its input, and the number of writable mappings that its
// process has of files with the test's prefix. The request's id selects further actions.
const plusModel = `
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            given, how = request.inputs()[0], request.request_id()
            x = given.as_numpy()
            out = pb_utils.Tensor("OUTPUT", x)
            if how == "plus":
                out = pb_utils.Tensor("OUTPUT", x + 1)
            if how == "write":
                x[:] = 7
            if how == "bls":
                inner = pb_utils.InferenceRequest(
                    model_name="callee", requested_output_names=["OUTPUT"], inputs=[given], request_id="plus"
                ).exec()
                out = pb_utils.get_output_tensor_by_name(inner, "OUTPUT")
            if how.startswith("hold:"):
                path = how[len("hold:"):]
                open(path + ".begun", "w").close()
                while not os.path.exists(path + ".over"):
                    if request.is_cancelled():
                        open(path + ".cancelled", "w").close()
                    time.sleep(0.002)
            with open("/proc/self/maps") as maps:
                shared = sum("rw-s" in line and "/dev/shm/nereid-regions-" in line for line in maps)
            tensors = [out, pb_utils.Tensor("DOUBLE", x * 2), pb_utils.Tensor("SHARED", np.array([shared], np.float64))]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
`

// TestModelsWriteOutputs requests large outputs in clients' shared memory, which the stub writes
// itself. Inputs in regions are next to the output, overlap it or coincide with it. Meanwhile
// clients unregister and truncate regions, and disconnect.
func TestModelsWriteOutputs(t *testing.T) {
	const config = `backend: "python"
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "DOUBLE" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "SHARED" data_type: TYPE_FP64 dims: [ 1 ] } ]
`
	texts := "backend: \"python\"\ninput [ { name: \"INPUT\" data_type: TYPE_STRING dims: [ -1 ] } ]\noutput [ { name: \"OUTPUT\" data_type: TYPE_STRING dims: [ -1 ] } ]\n"
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, map[string]string{
				"plus/config.pbtxt": config, "plus/1/model.py": plusModel,
				"callee/config.pbtxt": config, "callee/1/model.py": plusModel,
				"texts/config.pbtxt": texts, "texts/1/model.py": strings.ReplaceAll(heldModel, "%q", `""`),
			}), "--allow-client-shm=true")
			s.runClient("placed_outputs.py", regionsPrefix(t), t.TempDir())
			s.until("rid of all regions", func() bool { return s.figure("nereid_client_regions") == 0 })
			if n := s.figure(`nereid_stub_losses_total{cause="region",model="plus"}`); n != 2 {
				t.Errorf("%v stubs were lost because of clients that truncated regions, want 2", n)
			}
		})
	}
}
