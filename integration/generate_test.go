package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// generateModels creates the models for the requests of testdata/generate.jsonl.
func generateModels(t *testing.T) string {
	return writeFiles(t, map[string]string{
		"echo/config.pbtxt": `
backend: "python"
input [
  { name: "T" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "N" data_type: TYPE_INT32 dims: [ -1, 2 ] optional: true },
  { name: "F" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "H" data_type: TYPE_FP16 dims: [ 1 ] optional: true },
  { name: "B" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "U" data_type: TYPE_UINT8 dims: [ -1, -1 ] optional: true }
]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }, { name: "N" data_type: TYPE_FP32 dims: [ -1 ] } ]
`,
		"echo/1/model.py": `
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def seen(tensor):
    array = tensor.as_numpy()
    flat = [e.decode() if isinstance(e, bytes) else e for e in array.ravel().tolist()]
    return [list(array.shape), str(array.dtype), flat]


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for r in requests:
            told = [{t.name(): seen(t) for t in r.inputs()}, json.loads(r.parameters()), r.request_id()]
            text = json.dumps(told, sort_keys=True).encode()
            out = [
                pb_utils.Tensor("OUT", np.array([text], dtype=np.object_)),
                pb_utils.Tensor("N", np.array([1.5, 0.1], dtype=np.float32)),
            ]
            responses.append(pb_utils.InferenceResponse(out))
        return responses
`,
		"batch/config.pbtxt": `
backend: "python"
max_batch_size: 8
input [ { name: "N" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
`,
		"batch/1/model.py": `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
`,
		"dec/config.pbtxt": `
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`,
		// The model sends N numbers, with an error instead of the number "fail". It writes its
		// progress to the file "told".
		"dec/1/model.py": `
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            parameters = json.loads(r.parameters())
            sender = r.get_response_sender()
            padding = parameters.get("padding", 0)
            for i in range(int(r.inputs()[0].as_numpy()[0])):
                if "told" in parameters:
                    with open(parameters["told"], "w") as f:
                        f.write("cancelled\n" if r.is_cancelled() else "%d\n" % i)
                    if r.is_cancelled():
                        break
                if parameters.get("fail") == i:
                    error = pb_utils.TritonError("bad %d" % i, pb_utils.TritonError.NOT_FOUND)
                    sender.send(pb_utils.InferenceResponse(error=error))
                else:
                    array = np.full(1 + padding, i, dtype=np.int32)
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`,
		"err/config.pbtxt": `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`,
		"err/1/model.py": `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("no way", pb_utils.TritonError.UNAVAILABLE)
        return [pb_utils.InferenceResponse(error=error) for r in requests]
`,
	})
}

// generation is a request to a generate endpoint with Triton's reply.
type generation struct {
	Path, Body, Method string
	Headers            map[string]string
	Status             int
	Type, Reply        string
}

func readGenerations(t *testing.T) (list []generation) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "generate.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		g := generation{Method: http.MethodPost}
		err := lines.Decode(&g)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, g)
	}
}

// check sends the request and compares the reply.
func (g *generation) check(t *testing.T, s *runningServer) {
	t.Helper()
	r, err := http.NewRequest(g.Method, fmt.Sprintf("http://127.0.0.1:%d/v2/models/%s", s.http, g.Path), strings.NewReader(g.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range g.Headers {
		r.Header.Set(name, value)
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	if reply.StatusCode != g.Status || reply.Header.Get("Content-Type") != g.Type || string(body) != g.Reply {
		t.Errorf("%s %s %s %v: got %d %s\n %q, want %d %s\n %q", g.Method, g.Path, g.Body, g.Headers,
			reply.StatusCode, reply.Header.Get("Content-Type"), body, g.Status, g.Type, g.Reply)
	}
}

// TestGenerateRepliesAsTritonDoes checks that replies match testdata/generate.jsonl, which has
// Triton's replies.
func TestGenerateRepliesAsTritonDoes(t *testing.T) {
	s := start(t, testkit.Python(t).Path, generateModels(t))
	for _, g := range readGenerations(t) {
		g.check(t, s)
	}
}

// TestGenerationsSameAsTriton checks the recorded replies against a real Triton.
func TestGenerationsSameAsTriton(t *testing.T) {
	s := startTriton(t, yardstick(t), generateModels(t))
	for _, g := range readGenerations(t) {
		g.check(t, s)
	}
}

func TestGenerateForwardsHeaders(t *testing.T) {
	s := start(t, testkit.Python(t).Path, generateModels(t), "--http-header-forward-pattern=X-.*")
	_, body, err := s.try(http.MethodPost, "/v2/models/echo/generate", map[string]string{"X-User": "me"}, []byte(`{"p":1}`))
	if err != nil || !strings.Contains(body, `{\"X-User\": \"me\", \"p\": 1}`) {
		t.Errorf("got %s, %v", body, err)
	}
}

// TestServerSentEventsOverRealClients checks that httpx-sse can read the events, and hand-written
// code like that of LLM gateways.
func TestServerSentEventsOverRealClients(t *testing.T) {
	s := start(t, testkit.Python(t).Path, generateModels(t))
	s.runClient("generate.py")
}

// TestUnreadEventsHoldTheModelUp checks that a model with a client that does not read fills its
// window and the sockets and then waits. When the client disconnects, the request must be
// cancelled.
func TestUnreadEventsHoldTheModelUp(t *testing.T) {
	s := start(t, testkit.Python(t).Path, generateModels(t))
	told := filepath.Join(t.TempDir(), "told")
	const many = 1 << 20 // 256 KiB each, more than any buffer holds
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v2/models/dec/generate_stream", s.http),
		strings.NewReader(fmt.Sprintf(`{"N":%d,"padding":65535,"told":%q}`, many, told)))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if line, err := bufio.NewReader(reply.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, `data: {"OUT":[0,`) {
		t.Fatalf("got %.40q, %v", line, err)
	}
	content := func() string {
		b, err := os.ReadFile(told)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// The model continues until every buffer on the way to the client is full. Then its count must
	// stay the same while other requests are served.
	s.until("held up", func() bool {
		before := content()
		for range 100 {
			if status, _ := s.request(http.MethodPost, "/v2/models/batch/generate", `{"N":3}`); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		return content() == before
	})
	leave()
	s.until("cancelled", func() bool { return content() == "cancelled\n" })
	if status, body := s.request(http.MethodPost, "/v2/models/dec/generate", `{"N":1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}
