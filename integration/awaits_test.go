package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestAThousandRequestsAwaitInOneProcess checks that a model with an asynchronous execute can await
// 1,000 requests at once in one process. No request is answered before all have begun.
func TestAThousandRequestsAwaitInOneProcess(t *testing.T) {
	const model = `
import asyncio
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.begun = 0
        self.all = None

    async def execute(self, requests):
        if self.all is None:
            self.all = asyncio.Event()
        self.begun += len(requests)
        if self.begun == 1000:
            self.all.set()
        await self.all.wait()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]
`
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"m/config.pbtxt": oneFloat + `parameters { key: "ASYNC_EXECUTE_OVERLAP" value { string_value: "1000" } }`,
		"m/1/model.py":   model,
	}))
	var all sync.WaitGroup
	for n := range 1000 {
		all.Go(func() {
			status, body, err := s.try("POST", "/v2/models/m/infer", nil, fmt.Appendf(nil, inferBody, n))
			if want := fmt.Sprintf(`"data":[%d.0]`, n); err != nil || status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("request %d: got %d %s (error %v), want %s", n, status, body, err, want)
			}
		})
	}
	all.Wait()
	s.stop()
}
