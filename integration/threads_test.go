package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

const threadsConfig = `
backend: "python"
input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
`

// threadsHead has a function that calls a model with a text input and a text output.
const threadsHead = `
import os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils


def ask(model, text):
    tensor = pb_utils.Tensor("IN", np.array([text], np.object_))
    response = pb_utils.InferenceRequest(model_name=model, inputs=[tensor], requested_output_names=[]).exec()
    if response.has_error():
        return response.error().message()
    return response.output_tensors()[0].as_numpy()[0].decode()


class Answers:
    def execute(self, requests):
        responses = []
        for request in requests:
            answer = self.answer(request.inputs()[0].as_numpy()[0].decode())
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([answer], np.object_))]))
        return responses


`

// TestThreadsWorkForNobody runs a model with one instance. While it executes a request, one of its
// threads calls the same model through another one. The call is not part of the request, so it must
// wait until the instance is free and must not count as a cycle.
func TestThreadsWorkForNobody(t *testing.T) {
	directory := t.TempDir()
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"x/config.pbtxt": threadsConfig,
		"x/1/model.py": threadsHead + `
class TritonPythonModel(Answers):
    def initialize(self, args):
        self.begin = threading.Event()
        self.result = None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        self.begin.wait()
        self.result = ask("y", "echo")

    def answer(self, text):
        if text == "result":
            self.thread.join()
            return self.result
        if text.startswith("hold "):
            self.begin.set()
            while not os.path.exists(text[5:]):
                time.sleep(0.01)
        return text
`,
		"y/config.pbtxt": threadsConfig,
		"y/1/model.py": threadsHead + `
class TritonPythonModel(Answers):
    def answer(self, text):
        return ask("x", text)
`,
	}))
	asks := func(text string) string {
		status, body := s.request("POST", "/v2/models/x/infer", `{"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"data":["`+text+`"]}]}`)
		if status != http.StatusOK {
			t.Errorf("%s: status %d: %s", text, status, body)
		}
		return body
	}
	let := filepath.Join(directory, "go")
	held := make(chan string, 1) // receives one value
	go func() { held <- asks("hold " + let) }()
	s.until("the call waits for x", func() bool {
		return strings.Contains(s.scrape(), `nv_inference_pending_request_count{model="x",version="1"} 1`)
	})
	if err := os.WriteFile(let, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-held
	if got := asks("result"); !strings.Contains(got, `"data":["echo"]`) {
		t.Errorf("got %s, want the echo", got)
	}
}
