package integration

import (
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const slowModel = `import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.1)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
`

// TestDeadlinesForTheRealClient checks what tritonclient reports of calls whose deadline passes,
// and of one with too much metadata.
func TestDeadlinesForTheRealClient(t *testing.T) {
	repository := writeFiles(t, map[string]string{"slow/config.pbtxt": oneFloat, "slow/1/model.py": slowModel})
	s := start(t, testkit.Python(t).Path, repository)
	s.runClient("deadlines.py")
}
