package integration

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const keptConfig = `
backend: "python"
input [ { name: "A" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "B" data_type: TYPE_FP32 dims: [ -1, -1 ] optional: true } ]
output [
  { name: "X" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "SHAPE" data_type: TYPE_INT64 dims: [ 2 ] }
]
response_cache { enable: true }
instance_group [ { count: 2 kind: KIND_CPU } ]
`

// keptModel returns its inputs and the number of its executions. X repeats each element of A a
// thousand times. An A that begins with -1 causes an error.
const keptModel = `
import json, os, threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.executions = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.executions += 1
            inputs = {t.name(): t.as_numpy() for t in request.inputs()}
            a = inputs["A"]
            if a[0] == -1:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("bad one")))
                continue
            seen = {"pid": os.getpid(), "executions": self.executions, "parameters": json.loads(request.parameters())}
            outputs = {
                "X": np.repeat(a, 1000),
                "TEXT": np.array([json.dumps(seen)], object),
                "SHAPE": np.array(inputs["B"].shape if "B" in inputs else (-1, -1), np.int64),
            }
            names = request.requested_output_names()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor(n, outputs[n]) for n in names]))
        return responses
`

// keptCaller sends A to kept twice.
const keptCaller = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A")
            texts = []
            for _ in range(2):
                call = pb_utils.InferenceRequest(model_name="kept", requested_output_names=["X", "TEXT", "SHAPE"], inputs=[a])
                answer = call.exec()
                texts.append(pb_utils.get_output_tensor_by_name(answer, "TEXT").as_numpy()[0])
                x = pb_utils.get_output_tensor_by_name(answer, "X").as_numpy()
                x += 1  # is this model's own
            assert texts[0] == texts[1], texts
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("X", x)]))
        return responses
`

func keptRepository(t *testing.T) string {
	return writeFiles(t, map[string]string{
		"kept/config.pbtxt": keptConfig,
		"kept/1/model.py":   keptModel,
		"keeper/config.pbtxt": `
backend: "python"
input [ { name: "A" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "X" data_type: TYPE_INT32 dims: [ -1 ] } ]
`,
		"keeper/1/model.py": keptCaller,
	})
}

// TestResponseCacheAnswersLikeTheModel checks that the real client gets the same responses from the
// cache as from the model: complete and partial responses, shapes, parameters, evicted large
// responses, and responses to BLS requests.
func TestResponseCacheAnswersLikeTheModel(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			s := start(t, python.Path, keptRepository(t), "--cache-config=local,size=4000000", "--model-control-mode=explicit", "--load-model=*")
			s.runClient("cache.py", fmt.Sprint(s.metrics))
		})
	}
}

// TestResponseCacheIsWholeUnderLoad checks that concurrent clients read intact responses while
// large responses evict each other.
func TestResponseCacheIsWholeUnderLoad(t *testing.T) {
	s := start(t, testkit.Pythons(t)[0].Path, keptRepository(t), "--cache-config=local,size=1500000")
	s.runClient("cache.py", fmt.Sprint(s.metrics), "load")
}

// TestBadResponseCacheFlagsEndTheStart checks the error of a server that fails to start because of
// bad cache flags.
func TestBadResponseCacheFlagsEndTheStart(t *testing.T) {
	const start = "error: creating server: "
	const local = start + "Internal - Failed to initialize LocalCache: "
	repository := t.TempDir()
	for _, test := range []struct{ flags, want string }{
		{"--cache-config=local,x=5", start + "Invalid argument - Failed to initialize LocalCache: config didn't contain a valid 'size' field."},
		{"--cache-config=local,size=abc", local + "stoull"},
		{"--cache-config=local,size=0", local + "Could not initialize buffer in basic_managed_external_buffer constructor"},
		{"--response-cache-byte-size=100", local + "Could not initialize buffer in basic_managed_external_buffer constructor"},
		{"--response-cache-byte-size=-1", local + "failed to allocate buffer"},
		{"--cache-config=local,size=99999999999999999", local + "failed to allocate buffer"},
		{"--cache-config=redis,host=x --cache-directory=/nowhere",
			start + "Invalid argument - unable to find 'libtritoncache_redis.so' for cache. Searched: /nowhere"},
		{"--cache-config=redis,host=x --cache-config=local,size=1048576",
			start + "Invalid argument - found multiple cache configurations, but only a single cache is currently supported"},
		{"--response-cache-byte-size=5000 --cache-config=local,size=5000",
			"Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the other."},
		{"--cache-config=size=5", "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got size=5"},
	} {
		s := launch(t, "", repository, strings.Fields(test.flags)...)
		if status := s.wait(startLimit); status != 1 {
			t.Errorf("%s: exit status %d, want 1", test.flags, status)
		}
		if !s.prints(test.want + "\n") {
			t.Errorf("%s: no line %q in\n%s", test.flags, test.want, s.log)
		}
	}
}

// TestResponseCacheFlagsSameAsTriton checks that bad cache flags cause the same error as in a real
// Triton.
func TestResponseCacheFlagsSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	repository := t.TempDir()
	for _, flags := range []string{"--cache-config=local,x=5", "--cache-config=local,size=-5"} {
		triton := exec.Command(dir+"/tritonserver", append([]string{"--model-repository=" + repository}, strings.Fields(flags)...)...)
		theirs, _ := triton.CombinedOutput() // Triton exits with an error
		ours := launch(t, "", repository, strings.Fields(flags)...)
		ours.wait(startLimit)
		if want, got := lastLine(string(theirs)), lastLine(ours.log.String()); got != want {
			t.Errorf("%s: got %q, a real Triton says %q", flags, got, want)
		}
	}
}

// lastLine returns the last nonempty line of a text.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestResponseCacheIsRefused checks that a decoupled model cannot have a response cache.
func TestResponseCacheIsRefused(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"many/config.pbtxt": numberConfig + "response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }\n",
		"many/1/model.py":   countModel,
	})
	s := launch(t, testkit.Pythons(t)[0].Path, repository, "--cache-config=local,size=1048576", "--exit-on-error=false", "--strict-readiness=false")
	s.until("live", func() bool {
		status, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil && status == http.StatusOK
	})
	const want = "Invalid argument: Response Cache does not currently support model many with 'decoupled' transaction policy. Please disable the response cache."
	if got := s.index()["many"]; !s.prints("Response Cache does not currently support model many") {
		t.Errorf("got %+v, want %q in the log", got, want)
	}
}
