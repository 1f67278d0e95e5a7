package integration

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// callingModel executes the JSON plan in its input: it waits for other requests in a directory, and
// makes BLS requests with further plans, one after another, in threads or in coroutines. It returns
// their results.
const callingModel = `
import asyncio, concurrent.futures, json, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils


def text(value):
    return np.array([value.encode()], dtype=np.object_)


def meet(directory, name, count):
    # Returns when so many have come.
    os.makedirs(directory, exist_ok=True)
    open(os.path.join(directory, name), "w").close()
    while len(os.listdir(directory)) < count:
        time.sleep(0.005)


def result(response):
    if response.has_error():
        return "error: " + response.error().message()
    return json.loads(pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()[0])


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def make(self, call):
        return pb_utils.InferenceRequest(
            model_name=call["model"], requested_output_names=["OUT"],
            inputs=[pb_utils.Tensor("IN", text(json.dumps(call)))])

    def exec(self, call):
        if not call.get("stream"):
            return result(self.make(call).exec())
        responses = list(self.make(call).exec(decoupled=True))
        return [result(r) for r in responses if r.has_error() or r.output_tensors()][0]

    async def gathered(self, calls):
        return [result(r) for r in await asyncio.gather(*[self.make(c).async_exec() for c in calls])]

    def answer(self, request):
        plan = json.loads(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
        if "meet" in plan:
            meet(*plan["meet"])
        calls, how = plan.get("calls", []), plan.get("how")
        if how == "gather":
            got = asyncio.run(self.gathered(calls))
        elif how == "threads":
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                got = list(pool.map(self.exec, calls))
        else:
            got = [self.exec(c) for c in calls]
        return {self.name: got} if got else self.name

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text(json.dumps(self.answer(r))))]) for r in requests
        ]
`

func callingConfig(instances string) string {
	return `backend: "python"
input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: ` + instances + ` kind: KIND_CPU } ]
`
}

// TestModelsThatCallInCircles checks that a BLS request that could never be executed gets an error
// that names the cycle. All other requests must be executed, and the server must keep serving.
func TestModelsThatCallInCircles(t *testing.T) {
	files := map[string]string{}
	for model, instances := range map[string]string{"a": "1", "b": "1", "c": "1", "d": "1", "two": "2"} {
		files[model+"/config.pbtxt"] = callingConfig(instances)
		files[model+"/1/model.py"] = callingModel
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, files))
			s.runClient("cycles.py", t.TempDir())
		})
	}
}

// plan is the input of a calling model.
type plan struct {
	Model string `json:"model"`
	Calls []plan `json:"calls,omitempty"`
	Meet  []any  `json:"meet,omitempty"` // a directory, a file name in it, and the number of requests to wait for
}

// carryOut sends a plan to its model and returns a channel for the result.
func (s *runningServer) carryOut(p plan) <-chan string {
	text, err := json.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"inputs": []any{
		map[string]any{"name": "IN", "datatype": "BYTES", "shape": []int{1}, "data": []string{string(text)}},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	answer := make(chan string, 1) // receives one value
	go func() {
		_, text, err := s.try("POST", "/v2/models/"+p.Model+"/infer", nil, body)
		var reply struct {
			Outputs []struct{ Data []string }
			Error   string
		}
		switch {
		case err != nil:
			answer <- err.Error()
		case json.Unmarshal([]byte(text), &reply) != nil || len(reply.Outputs) != 1:
			answer <- text
		default:
			answer <- reply.Outputs[0].Data[0]
		}
	}()
	return answer
}

// comes waits until a model has created its file in the directory.
func (s *runningServer) comes(directory, name string) {
	s.t.Helper()
	s.until("asking "+name, func() bool {
		_, err := os.Stat(filepath.Join(directory, name))
		return err == nil
	})
}

// come releases the requests that wait in the directory.
func come(t *testing.T, directory string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(directory, "the test"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCallsWhileModelsAreUnloaded unloads the calling model, unloads the called model before or
// during its execution, or stops the server. Requests in flight must finish, and nothing may hang.
func TestCallsWhileModelsAreUnloaded(t *testing.T) {
	for _, c := range []struct {
		name   string
		plan   func(directory string) plan
		waits  string // the file that exists by then
		unload string // a model, or "" to stop the server
		want   string
	}{
		{
			"the caller", func(dir string) plan {
				return plan{Model: "a", Meet: []any{dir, "a", 2}, Calls: []plan{{Model: "b"}, {Model: "a"}}}
			}, "a", "a",
			`{"a": ["b", "error: Model a - Error when running inference: Request for unknown model: 'a' has no available versions"]}`,
		},
		{
			"the called, before", func(dir string) plan {
				return plan{Model: "a", Meet: []any{dir, "a", 2}, Calls: []plan{{Model: "b"}, {Model: "c"}}}
			}, "a", "b",
			`{"a": ["error: Model b - Error when running inference: Request for unknown model: 'b' has no available versions", "c"]}`,
		},
		{
			"the called, meanwhile", func(dir string) plan {
				return plan{Model: "a", Calls: []plan{{Model: "b", Meet: []any{dir, "b", 2}, Calls: []plan{{Model: "c"}}}, {Model: "c"}}}
			}, "b", "b",
			`{"a": [{"b": ["c"]}, "c"]}`,
		},
		{
			"the server", func(dir string) plan {
				return plan{Model: "a", Meet: []any{dir, "a", 2}, Calls: []plan{{Model: "b", Calls: []plan{{Model: "c"}}}, {Model: "c"}}}
			}, "a", "",
			`{"a": [{"b": ["c"]}, "c"]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			for _, model := range []string{"a", "b", "c"} {
				files[model+"/config.pbtxt"] = callingConfig("1")
				files[model+"/1/model.py"] = callingModel
			}
			s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit", "--load-model=*")
			directory := t.TempDir()
			answer := s.carryOut(c.plan(directory))
			s.comes(directory, c.waits)
			if c.unload == "" {
				_ = s.cmd.Process.Signal(unix.SIGTERM)
				s.until("exiting", func() bool {
					status, _, err := s.try("GET", "/v2/health/live", nil, nil)
					return err != nil || status != http.StatusOK
				})
			} else if status, text := s.request("POST", "/v2/repository/models/"+c.unload+"/unload", ""); status != http.StatusOK {
				t.Fatalf("unload %s: %s", c.unload, text)
			}
			come(t, directory)
			if got := <-answer; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c.unload == "" {
				if status := s.wait(startLimit); status != 0 {
					t.Errorf("exit status %d, want 0", status)
				}
				return
			}
			s.until("done with "+c.unload, func() bool { return s.index()[c.unload].State == "UNAVAILABLE" })
			if got := <-s.carryOut(plan{Model: "c"}); got != `"c"` {
				t.Errorf("afterwards: got %s", got)
			}
		})
	}
}
