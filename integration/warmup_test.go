package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// warmedModel returns the inputs of its earlier executions.
const warmedModel = `
import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.batches = []
        self.decoupled = json.loads(args["model_config"])["model_transaction_policy"]["decoupled"] if DECOUPLED else False

    def execute(self, requests):
        seen = json.dumps(self.batches)
        self.batches.append([[self.told(t) for t in sorted(r.inputs(), key=lambda t: t.name())] for r in requests])
        if FAILS:
            raise RuntimeError("not warm")
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", np.array([[seen.encode()]], dtype=np.object_))])
        if not DECOUPLED:
            return [answer for _ in requests]
        for r in requests:
            threading.Thread(target=self.send, args=(r.get_response_sender(), answer)).start()

    def send(self, sender, answer):
        for _ in range(3):
            sender.send(answer)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def told(self, t):
        a = t.as_numpy()
        values = [v.decode() if isinstance(v, bytes) else v for v in a.ravel().tolist()]
        return [t.name(), str(a.dtype), list(a.shape), values if RANDOM is False or t.name() != "IN" else len(set(values)) > 1]
`

const warmedConfig = `
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] optional: true } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// warmupSample returns a sample of model_warmup. inputs has name, type, dims and data of each
// input.
func warmupSample(name, rest string, inputs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "model_warmup [ { name: %q %s ", name, rest)
	for i := 0; i+3 < len(inputs); i += 4 {
		fmt.Fprintf(&b, "inputs { key: %q value { data_type: TYPE_%s dims: [ %s ] %s } } ", inputs[i], inputs[i+1], inputs[i+2], inputs[i+3])
	}
	return b.String() + "} ]\n"
}

// warmedModels are models by name, each with the rest of its config after warmedConfig.
var warmedModels = map[string]string{
	"zeros":        warmupSample("s", "batch_size: 3 count: 2", "IN", "INT32", "2", "zero_data: true") + "instance_group [ { count: 2 kind: KIND_CPU } ]",
	"several":      warmupSample("one", "batch_size: 1", "IN", "INT32", "2", "zero_data: true") + warmupSample("none", "", "IN", "INT32", "2", "zero_data: true") + warmupSample("two", "batch_size: 2", "IN", "INT32", "2", "zero_data: true"),
	"random":       warmupSample("s", "batch_size: 1", "IN", "INT32", "2", "random_data: true"),
	"file":         warmupSample("s", "batch_size: 1", "IN", "INT32", "2", `input_data_file: "numbers"`, "TEXT", "STRING", "2", `input_data_file: "texts"`),
	"texts":        warmupSample("s", "batch_size: 1", "IN", "INT32", "2", "zero_data: true", "TEXT", "STRING", "3", "zero_data: true"),
	"control":      warmupSample("s", "batch_size: 1", "IN", "INT32", "2", "zero_data: true", "START", "FP32", "1", "zero_data: true"),
	"decoupled":    warmupSample("s", "batch_size: 2", "IN", "INT32", "2", "zero_data: true") + "model_transaction_policy { decoupled: true }",
	"passive":      warmupSample("s", "batch_size: 1", "IN", "INT32", "2", "zero_data: true") + "instance_group [ { count: 1 kind: KIND_CPU passive: true }, { count: 1 kind: KIND_CPU } ]",
	"fails":        warmupSample("s", "batch_size: 2", "IN", "INT32", "2", "zero_data: true"),
	"no_file":      warmupSample("s", "batch_size: 1", "IN", "INT32", "2", `input_data_file: "none"`),
	"short_file":   warmupSample("s", "batch_size: 1", "IN", "INT32", "2", `input_data_file: "short"`),
	"variable":     warmupSample("s", "batch_size: 1", "IN", "INT32", "-1", "zero_data: true"),
	"no_data":      warmupSample("s", "batch_size: 1", "IN", "INT32", "2", ""),
	"other_shape":  warmupSample("s", "batch_size: 1", "IN", "INT32", "3", "zero_data: true"),
	"other_type":   warmupSample("s", "batch_size: 1", "IN", "FP32", "2", "zero_data: true"),
	"no_input":     warmupSample("s", "batch_size: 1", "TEXT", "STRING", "2", "zero_data: true"),
	"broken_texts": warmupSample("s", "batch_size: 1", "IN", "INT32", "2", "zero_data: true", "TEXT", "STRING", "3", `input_data_file: "texts"`),
}

func warmedRepository(t *testing.T) string {
	files := map[string]string{
		"file/warmup/numbers": "\x01\x00\x00\x00\x02\x00\x00\x00and more", "short_file/warmup/short": "abc",
		"file/warmup/texts": "\x02\x00\x00\x00ab\x00\x00\x00\x00", "broken_texts/warmup/texts": "\x02\x00\x00\x00ab\x00\x00\x00\x00",
	}
	for name, config := range warmedModels {
		is := func(other string) string { return map[bool]string{true: "True", false: "False"}[name == other] }
		files[name+"/config.pbtxt"] = warmedConfig + config
		files[name+"/1/model.py"] = "FAILS, RANDOM, DECOUPLED = " + is("fails") + ", " + is("random") + ", " + is("decoupled") + "\n" + warmedModel
	}
	return writeFiles(t, files)
}

// warmedOutcome loads a model and returns the error, or its counts and the inputs of its
// executions.
func warmedOutcome(s *runningServer, name string) string {
	s.t.Helper()
	status, body := s.request("POST", "/v2/repository/models/"+name+"/load", "")
	if status != http.StatusOK {
		return fmt.Sprintf("%d %s", status, helperFrames.ReplaceAllString(errorOf(s.t, body), ""))
	}
	counts := s.countsOf(name)
	if name == "decoupled" { // decoupled models cannot reply over HTTP
		return counts
	}
	_, body = s.request("POST", "/v2/models/"+name+"/infer", `{"inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[5,6]}]}`)
	return counts + " " + seenIn(s.t, body)
}

// countsOf returns the counts in a model's statistics.
func (s *runningServer) countsOf(name string) string {
	s.t.Helper()
	_, body := s.request("GET", "/v2/models/"+name+"/stats", "")
	var reply struct {
		Models []struct {
			Inferences int `json:"inference_count"`
			Executions int `json:"execution_count"`
			Stats      map[string]struct {
				Count int
			} `json:"inference_stats"`
			Batches []struct {
				Size  int                 `json:"batch_size"`
				Infer struct{ Count int } `json:"compute_infer"`
			} `json:"batch_stats"`
		} `json:"model_stats"`
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || len(reply.Models) != 1 {
		s.t.Fatalf("statistics of %s: %v: %s", name, err, body)
	}
	m := reply.Models[0]
	text := fmt.Sprintf("%d inferences, %d executions", m.Inferences, m.Executions)
	var names []string
	for name := range m.Stats {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text += fmt.Sprintf(", %s %d", name, m.Stats[name].Count)
	}
	for _, b := range m.Batches {
		text += fmt.Sprintf(", %d of %d", b.Infer.Count, b.Size)
	}
	return text
}

// seenIn returns the string in a model's output.
func seenIn(t *testing.T, body string) string {
	t.Helper()
	var reply struct {
		Outputs []struct{ Data []string }
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || len(reply.Outputs) != 1 || len(reply.Outputs[0].Data) != 1 {
		t.Fatalf("no answer: %v: %s", err, body)
	}
	return reply.Outputs[0].Data[0]
}

// TestWarmupRunsEverySample checks that models with all kinds of samples run them, or fail to load
// with the reason. A restarted stub must be warmed up again.
func TestWarmupRunsEverySample(t *testing.T) {
	const none = "cache_hit 0, cache_miss 0, compute_infer %[1]d, compute_input %[1]d, compute_output %[1]d, fail 0, queue %[1]d, success %[1]d"
	counts := func(inferences, executions int, batches string) string {
		return fmt.Sprintf("%d inferences, %d executions, ", inferences, executions) + fmt.Sprintf(none, inferences) + ", " + batches
	}
	const zeros = `["IN", "int32", [1, 2], [0, 0]]`
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, warmedRepository(t), "--model-control-mode=explicit", "--log-verbose=1")
			for name, want := range map[string]string{
				"zeros":     counts(12, 4, "4 of 3") + " [[[" + zeros + "], [" + zeros + "], [" + zeros + "]], [[" + zeros + "], [" + zeros + "], [" + zeros + "]]]",
				"several":   counts(3, 2, "1 of 1, 1 of 2") + " [[[" + zeros + "]], [[" + zeros + "], [" + zeros + "]]]",
				"random":    counts(1, 1, "1 of 1") + ` [[[["IN", "int32", [1, 2], true]]]]`,
				"file":      counts(1, 1, "1 of 1") + ` [[[["IN", "int32", [1, 2], [1, 2]], ["TEXT", "object", [1, 2], ["ab", ""]]]]]`,
				"texts":     counts(1, 1, "1 of 1") + ` [[[["IN", "int32", [1, 2], [0, 0]], ["TEXT", "object", [1, 3], ["", "", ""]]]]]`,
				"control":   counts(1, 1, "1 of 1") + ` [[[["IN", "int32", [1, 2], [0, 0]], ["START", "float32", [1, 1], [0.0]]]]]`,
				"decoupled": counts(2, 1, "1 of 2"),
				"passive":   counts(1, 1, "1 of 1") + " [[[" + zeros + "]]]",
				"no_data":   "400 load failed for model 'no_data': version 1 is at UNAVAILABLE state: Invalid argument: [request id: <id_unknown>] warmup setting expects input 'IN' to have input_data_type set;\n",
			} {
				if got := warmedOutcome(s, name); got != want {
					t.Errorf("%s:\n got %s\nwant %s", name, got, want)
				}
			}
			const failed = "400 load failed for model 'fails': version 1 is at UNAVAILABLE state: Invalid argument: failed to run warmup sample 's': "
			if got := warmedOutcome(s, "fails"); !strings.HasPrefix(got, failed) || strings.Count(got, "not warm") != 2 {
				t.Errorf("fails: got %s", got)
			}
			if want := "model 'zeros' instance zeros_0_1 is running warmup sample 's' for iteration 2"; !s.prints(want) {
				t.Errorf("the log does not say %q", want)
			}

			// A restarted stub must be warmed up again before it gets requests.
			if status, body := s.request("POST", "/v2/repository/models/zeros/unload", ""); status != http.StatusOK {
				t.Fatalf("unload: %d %s", status, body)
			}
			stubs := map[int]bool{}
			for _, pid := range s.stubs() {
				stubs[pid] = true
			}
			if got := warmedOutcome(s, "several"); !strings.HasPrefix(got, "4 inferences") { // the model is loaded
				t.Errorf("several: got %s", got)
			}
			for pid := range stubs {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			var body string
			if !testkit.Within(startLimit, func() bool {
				_, body = s.request("POST", "/v2/models/several/infer", `{"inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[5,6]}]}`)
				return strings.Contains(body, "SEEN")
			}) {
				t.Fatalf("a model that was lost does not come again: %s", body)
			}
			if got, want := seenIn(t, body), "[[["+zeros+"]], [["+zeros+"], ["+zeros+"]]]"; got != want {
				t.Errorf("after its loss the model has seen\n     %s\nwant %s", got, want)
			}
		})
	}
}

// TestWarmupSameAsTriton checks that the same models have the same outcome on both servers.
func TestWarmupSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	root := warmedRepository(t)
	triton := startTriton(t, dir, root, "--model-control-mode=explicit")
	nereid := start(t, "/usr/bin/python3", root, "--model-control-mode=explicit")
	for name := range warmedModels {
		want, got := warmedOutcome(triton, name), warmedOutcome(nereid, name)
		if got != want {
			t.Errorf("%s:\n   Triton: %s\n   Nereid: %s", name, want, got)
		}
	}
}
