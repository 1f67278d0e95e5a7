package integration

import "testing"

// sumsModel returns the sum of its input and the number of mappings that its process has of files
// with the test's prefix. The request's id selects further actions.
const sumsModel = `
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x, how = request.inputs()[0].as_numpy(), request.request_id()
            if how == "write":
                x[:] = 7
            if how == "keep":
                self.kept = x
            if how == "drop":
                self.kept = None
            if how == "kept":
                x = self.kept
            if how.startswith("hold:"):
                path = how[len("hold:"):]
                open(path + ".begun", "w").close()
                while not os.path.exists(path + ".over"):
                    time.sleep(0.002)
            with open("/proc/self/maps") as maps:
                key = how if how.startswith("/dev/shm/") else "/dev/shm/nereid-regions-"
                mapped = sum(key in line for line in maps)
            out = np.array([x.sum(dtype=np.float64), mapped], np.float64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", out)]))
        return responses
`

// TestModelsMapRegions sends large inputs in clients' shared memory, which the stub maps itself.
// Meanwhile the model writes to the regions and keeps them, clients unregister and truncate them,
// and a client is killed. Only truncations may end the stub.
func TestModelsMapRegions(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, map[string]string{
				"sums/config.pbtxt": `backend: "python"
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP64 dims: [ 2 ] } ]
`,
				"sums/1/model.py": sumsModel,
			}), "--allow-client-shm=true")
			s.runClient("mapped_regions.py", regionsPrefix(t), t.TempDir())
			s.until("rid of all regions", func() bool { return s.figure("nereid_client_regions") == 0 })
			if n := s.figure(`nereid_stub_losses_total{cause="region",model="sums"}`); n != 2 {
				t.Errorf("%v stubs were lost because of clients that truncated regions, want 2", n)
			}
		})
	}
}
