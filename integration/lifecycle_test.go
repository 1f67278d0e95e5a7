package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// lifecycleHead is the beginning of the models here. stop(phase) writes the pid into a file beside
// the version's directory, and hangs.
const lifecycleHead = `
import os, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils


def stop(phase, directory=None):
    path = os.path.join(os.path.dirname(pb_utils.get_model_dir()), phase)
    with open(path + ".new", "w") as f:
        f.write(str(os.getpid()))
    os.rename(path + ".new", path)
    time.sleep(1000)


def answer(requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]


`

// ask queries models with tritonclient, over HTTP and gRPC.
func (s *runningServer) ask(question string, names ...string) map[string][2]json.RawMessage {
	s.t.Helper()
	arguments := append([]string{runScript, "testdata/lifecycle.py", fmt.Sprintf("127.0.0.1:%d", s.http), fmt.Sprintf("127.0.0.1:%d", s.grpc), question}, names...)
	command := exec.Command(clientPython(s.t), arguments...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		s.t.Fatalf("lifecycle.py %s: %v", question, err)
	}
	var answers map[string][2]json.RawMessage
	if err := json.Unmarshal(output, &answers); err != nil {
		s.t.Fatalf("lifecycle.py %s: %v: %s", question, err, output)
	}
	return answers
}

// completing returns a model with the given body of auto_complete_config.
func completing(body string) string {
	return lifecycleHead + "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        " +
		strings.ReplaceAll(strings.TrimSpace(body), "\n", "\n        ") + "\n\n    def execute(self, requests):\n        return answer(requests)\n"
}

const addBoth = `
for add, known, name in ((config.add_input, "input", "INPUT0"), (config.add_output, "output", "OUTPUT0")):
    if name not in [t["name"] for t in config.as_dict()[known]]:
        add({"name": name, "data_type": "TYPE_FP32", "dims": [1]})
`

// TestAutoCompleteIsServedToClients loads models that complete their config, with and without a
// config file. Clients must see the completed configs and be able to use the models.
func TestAutoCompleteIsServedToClients(t *testing.T) {
	models := map[string]struct {
		config, model string
		batch         int
		batching      bool
	}{
		"without_file":  {"", completing(addBoth + "return config"), 0, false},
		"batching":      {"", completing(addBoth + "config.set_max_batch_size(4)\nconfig.set_dynamic_batching()\nreturn config"), 4, true},
		"complete_file": {oneFloat, completing(addBoth + "return config"), 0, false},
		"half_a_file":   {"input [ { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 1 ] } ]\nmax_batch_size: 2", completing(addBoth + "return config"), 2, false},
		"without_say":   {oneFloat, lifecycleHead + "class TritonPythonModel:\n    def execute(self, requests):\n        return answer(requests)\n", 0, false},
		"raised":        {oneFloat + "max_batch_size: 2", completing("config.set_max_batch_size(8)\nreturn config"), 8, false},
		"more_said":     {oneFloat, completing(`config.as_dict()["parameters"] = {"a": {"string_value": "b"}}` + "\nreturn config"), 0, false},
	}
	files := map[string]string{}
	var names []string
	for name, m := range models {
		names = append(names, name)
		files[name+"/1/model.py"] = m.model
		if m.config != "" {
			files[name+"/config.pbtxt"] = m.config
		}
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, python.Path, writeFiles(t, files))
			if stubs := s.stubs(); len(stubs) != len(models) {
				t.Errorf("%d stubs run, want one for each of %d models", len(stubs), len(models))
			}
			for name, answers := range s.ask("config", names...) {
				m := models[name]
				for i, raw := range answers {
					var c struct {
						Backend       string                            `json:"backend"`
						File          string                            `json:"default_model_filename"`
						Batch         int                               `json:"max_batch_size"`
						Input, Output []struct{ Name, DataType string } `json:",omitempty"`
						Batching      *struct{}                         `json:"dynamic_batching"`
						Parameters    map[string]any                    `json:"parameters"`
					}
					if err := json.Unmarshal(raw, &c); err != nil {
						t.Fatalf("%s: %v: %s", name, err, raw)
					}
					if c.Backend != "python" || c.File != "model.py" || c.Batch != m.batch || (c.Batching != nil) != m.batching || len(c.Parameters) != 0 {
						t.Errorf("%s: config %d is %s", name, i, raw)
					}
					if len(c.Input) != 1 || c.Input[0].Name != "INPUT0" || len(c.Output) != 1 || c.Output[0].Name != "OUTPUT0" {
						t.Errorf("%s: tensors of config %d are %+v and %+v", name, i, c.Input, c.Output)
					}
				}
				shape := "[1]"
				if m.batch > 0 {
					shape = "[1,1]"
				}
				body := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":%s,"data":[7]}]}`, shape)
				if status, text := s.request("POST", "/v2/models/"+name+"/infer", body); status != http.StatusOK || !strings.Contains(text, `"data":[7`) {
					t.Errorf("%s: status %d: %s", name, status, text)
				}
			}
		})
	}
}

// TestModelsDecideWhetherTheyAreDecoupled checks that a model can set its decoupled mode in
// auto_complete_config, again at each load.
func TestModelsDecideWhetherTheyAreDecoupled(t *testing.T) {
	model := func(policy string) string {
		return completing(addBoth + "config.set_model_transaction_policy({'decoupled': " + policy + "})\nreturn config")
	}
	files := map[string]string{
		"yes/1/model.py": model("True"), "no/1/model.py": model("False"),
		"same/1/model.py": model("True"), "same/config.pbtxt": oneFloat + "model_transaction_policy { decoupled: true }",
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--model-control-mode=explicit", "--load-model=*")
	for range 2 {
		for name, want := range map[string]bool{"yes": true, "no": false, "same": true} {
			_, config := s.request("GET", "/v2/models/"+name+"/config", "")
			if policy := fmt.Sprintf(`"model_transaction_policy":{"decoupled":%v}`, want); !strings.Contains(config, policy) {
				t.Errorf("%s: config has no %s: %s", name, policy, config)
			}
			status, body := s.infer(name, 3)
			switch {
			case !want && status != http.StatusOK:
				t.Errorf("%s: status %d: %s", name, status, body)
			case want && (status == http.StatusOK || !strings.Contains(errorOf(t, body), "decoupled")):
				t.Errorf("%s: status %d: %s, want an error that says decoupled", name, status, body)
			}
			if status, body := s.request("POST", "/v2/repository/models/"+name+"/load", ""); status != http.StatusOK {
				t.Errorf("%s: load again: status %d: %s", name, status, body)
			}
		}
	}
}

// TestIncompleteConfigsFailTheLoad checks that the load of a model fails with the reason if its
// auto_complete_config fails or its config stays invalid.
func TestIncompleteConfigsFailTheLoad(t *testing.T) {
	const where = `auto-complete-config function for model '%[1]s'`
	at := `\n\nAt:\n  .*/%[1]s/1/model\.py\(\d+\): auto_complete_config\n$`
	models := []struct{ name, config, body, want string }{
		{"smaller_batch", oneFloat + "max_batch_size: 6", "config.set_max_batch_size(4)", `^Internal: ValueError: configuration specified max_batch_size 6, but in ` + where + ` specified max_batch_size 4` + at},
		{"more_properties", oneFloat, `config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1], "y": 1})`,
			`^Internal: ValueError: input 'X' in ` + where + ` contains property other than 'name', 'data_type', 'dims' and 'optional'\.` + at},
		{"no_name", oneFloat, `config.add_output({"data_type": "TYPE_FP32", "dims": [1]})`, `^Internal: ValueError: output in ` + where + ` is missing 'name' property\.` + at},
		{"no_type", oneFloat, `config.add_output({"name": "X", "dims": [1]})`, `^Internal: ValueError: output 'X' in ` + where + ` is missing 'data_type' property\.` + at},
		{"no_dims", oneFloat, `config.add_input({"name": "X", "data_type": "TYPE_FP32"})`, `^Internal: ValueError: input 'X' in ` + where + ` is missing 'dims' property\.` + at},
		{"other_type", oneFloat, `config.add_input({"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]})`,
			`^Internal: ValueError: unable to load model '%[1]s', configuration expects datatype TYPE_FP32 for input 'INPUT0', model provides TYPE_INT32` + at},
		{"other_dims", oneFloat, `config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [16]})`,
			`^Internal: ValueError: model '%[1]s', tensor 'INPUT0': the model expects dims \[16\] but the model configuration specifies dims \[1\]` + at},
		{"optional", oneFloat, `config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1], "optional": True})`,
			`^Internal: ValueError: model '%[1]s', tensor 'INPUT0': the model expects optional True but the model configuration specifies optional False` + at},
		{"other_policy", oneFloat + "model_transaction_policy { decoupled: false }", `config.set_model_transaction_policy({"decoupled": True})`,
			`^Internal: ValueError: trying to change decoupled property in auto-complete-config for model '%[1]s', which is already set to 'False'\.` + at},
		{"nothing", oneFloat, "return None", `^Internal: auto_complete_config function in model '%[1]s' must return a valid pb\.ModelConfig object\.$`},
		{"no_json", oneFloat, `config.as_dict()["x"] = {1}` + "\nreturn config", `^Internal: TypeError: Object of type set is not JSON serializable\n\nAt:\n`},
		{"nan", oneFloat, `config.as_dict()["x"] = float("nan")` + "\nreturn config", `^Internal: Failed to accept document, invalid JSON\.$`},
		{"exits", oneFloat, "sys.exit(4)", `^Internal: SystemExit: 4` + at},
		{"dies", oneFloat, "os._exit(4)", `^Internal: Stub process '' is not healthy\.$`},
		{"hangs", oneFloat, "time.sleep(1000)", `^Internal: Stub process '' is not healthy\.$`},
		{"unknown_field", oneFloat, `config.as_dict()["foo"] = 1` + "\nreturn config", `^Invalid argument: foo: Cannot find field\.$`},
		{"odd_batch", oneFloat, `config.as_dict()["max_batch_size"] = "x"` + "\nreturn config", `^Invalid argument: \(max_batch_size\): invalid value "x" for type TYPE_INT32$`},
		{"other_scheduler", oneFloat + "max_batch_size: 4\ndynamic_batching { }", `del config.as_dict()["dynamic_batching"]` + "\nreturn config",
			`^Internal: Cannot update scheduling choice from 11 to 11 when auto-completing\.$`},
		{"odd_dims", oneFloat, `config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [0]})` + "\nreturn config",
			`^Invalid argument: model input 'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for %[1]s$`},
		{"metrics", oneFloat, `pb_utils.MetricFamily(name="f", description="d", kind=pb_utils.MetricFamily.COUNTER)`, `^Internal: TritonModelException: .*while the model completes its config` + at},
		{"model_control", oneFloat, `pb_utils.load_model("good")`, `^Internal: TritonModelException: .*while the model completes its config` + at},
		{"model_ready", oneFloat, `pb_utils.is_model_ready("good")`, `^Internal: TritonModelException: .*while the model completes its config` + at},
		{"bls", oneFloat, `pb_utils.InferenceRequest(model_name="good", requested_output_names=[], inputs=[]).exec()`, `^Internal: TritonModelException: BLS is only supported during the 'execute' function\.` + at},
		{"no_file", "-", "", `^Internal: Stub process '' is not healthy\. Python model file not found in 'no_file/1/model\.py'$`},
	}
	files := map[string]string{"good/1/model.py": completing(addBoth + "return config")}
	for _, m := range models {
		files[m.name+"/config.pbtxt"] = strings.Replace(m.config, "-", oneFloat, 1)
		if m.config != "-" {
			files[m.name+"/1/model.py"] = completing(m.body)
		} else {
			files[m.name+"/1/data"] = ""
		}
	}
	root := writeFiles(t, files)
	hangs := writeFiles(t, map[string]string{"hangs/config.pbtxt": oneFloat, "hangs/1/model.py": files["hangs/1/model.py"]})
	if err := os.RemoveAll(filepath.Join(root, "hangs")); err != nil {
		t.Fatal(err)
	}
	s := launch(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
	hurried := launch(t, testkit.Python(t).Path, hangs, "--exit-on-error=false", "--backend-config=python,initialize-timeout-seconds=3")
	index := map[string]indexEntry{}
	for _, s := range []*runningServer{s, hurried} {
		s.until("listening", func() bool {
			status, _, err := s.try("GET", "/v2/health/live", nil, nil)
			return err == nil && status == http.StatusOK
		})
		maps.Copy(index, s.index())
	}
	for _, m := range models {
		want := m.want
		if strings.Contains(want, "%[1]s") {
			want = fmt.Sprintf(want, m.name)
		}
		entry := index[m.name]
		if entry.State != "UNAVAILABLE" || !regexp.MustCompile(want).MatchString(entry.Reason) {
			t.Errorf("%s: state %q, reason %q, want UNAVAILABLE, %q", m.name, entry.State, entry.Reason, want)
		}
	}
	if stubs := s.stubs(); len(stubs) != 1 {
		t.Errorf("%d stubs run, want that of the good model alone", len(stubs))
	}
	// The load API must return the same text as Triton.
	status, body := s.request("POST", "/v2/repository/models/smaller_batch/load", "")
	want := "load failed for model 'smaller_batch': version 1 is at UNAVAILABLE state: Internal: ValueError: configuration specified max_batch_size 6, but in "
	if message := errorOf(t, body); status != http.StatusBadRequest || !strings.HasPrefix(message, want) || !strings.HasSuffix(message, ";\n") {
		t.Errorf("load: status %d, %q", status, message)
	}
	for _, line := range []string{
		"Failed to initialize Python stub for auto-complete: ValueError: configuration specified max_batch_size 6",
		"failed to load 'smaller_batch' version 1: Internal: ValueError: configuration specified max_batch_size 6",
		"Failed to preinitialize Python stub: Python model file not found in '",
		"the config of model 'unknown_field' is not valid after its auto_complete_config: foo: Cannot find field.",
	} {
		if !s.prints(line) {
			t.Errorf("the log has no %q", line)
		}
	}
	if line := "process did not complete its config within 3s"; !hurried.prints(line) {
		t.Errorf("the log has no %q", line)
	}
}

// TestAutoCompleteOffAsksNoModel disables auto-completion. auto_complete_config must not be called,
// and incomplete configs must be rejected.
func TestAutoCompleteOffAsksNoModel(t *testing.T) {
	files := map[string]string{
		"complete/config.pbtxt": oneFloat, "complete/1/model.py": completing("raise ValueError('it was asked')"),
		"half/config.pbtxt": "backend: \"python\"\ninput [ { name: \"INPUT0\" data_type: TYPE_FP32 } ]", "half/1/model.py": completing(addBoth + "return config"),
		"no_file/1/model.py": completing(addBoth + "return config"),
	}
	for _, flag := range []string{"--disable-auto-complete-config", "--strict-model-config=true"} {
		t.Run(flag, func(t *testing.T) {
			root := writeFiles(t, files)
			s := launch(t, testkit.Python(t).Path, root, "--exit-on-error=false", flag)
			s.until("listening", func() bool {
				status, _, err := s.try("GET", "/v2/health/live", nil, nil)
				return err == nil && status == http.StatusOK
			})
			if status, body := s.infer("complete", 3); status != http.StatusOK {
				t.Errorf("a complete config: status %d: %s", status, body)
			}
			for _, line := range []string{
				"Poll failed for model directory 'no_file': failed to open text file for read " + root + "/no_file/config.pbtxt: No such file or directory",
				"Poll failed for model directory 'half': model input 'INPUT0' must specify 'dims' for half",
			} {
				if !s.prints(line) {
					t.Errorf("the log has no %q", line)
				}
			}
		})
	}
}

// asked returns a model with the given line in is_ready.
func asked(line string) string {
	return lifecycleHead + "class TritonPythonModel:\n    checks = 0\n\n    def is_ready(self):\n        TritonPythonModel.checks += 1\n        " + line +
		"\n\n    def execute(self, requests):\n        return answer(requests)\n"
}

// TestReadinessAsksModels checks the readiness of models that implement is_ready.
func TestReadinessAsksModels(t *testing.T) {
	files := map[string]string{}
	for name, model := range map[string]string{
		"yes": asked("return True"), "never": asked("return False"), "one": asked("return 1"), "raises": asked("raise ValueError('not well')"),
		"alternates":   asked("return self.checks % 3 == 0"),
		"asynchronous": strings.Replace(asked("return self.checks % 3 == 0"), "def is_ready", "async def is_ready", 1),
	} {
		files[name+"/config.pbtxt"] = oneFloat
		files[name+"/1/model.py"] = model
	}
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			s := launch(t, python.Path, writeFiles(t, files), "--log-verbose=1", "--strict-readiness=false")
			s.waitReady()
			yes, no := [2]string{"true", "true"}, [2]string{"false", "false"}
			wants := map[string][2]string{
				"yes": yes, "never": no, "one": no, "raises": no, "alternates": no, "asynchronous": no, "": yes,
			}
			var names []string
			for name := range wants {
				names = append(names, name)
			}
			for name, answers := range s.ask("ready", names...) {
				if got := [2]string{string(answers[0]), string(answers[1])}; got != wants[name] {
					t.Errorf("%q: got ready %v, want %v", name, got, wants[name])
				}
			}
			// The third check of these models is the first that succeeds.
			for name, answers := range s.ask("ready", "alternates", "asynchronous") {
				if string(answers[0]) != "true" || string(answers[1]) != "false" {
					t.Errorf("%s: got ready %s, want true, then false", name, answers)
				}
			}
			if status, body := s.request("GET", "/v2/models/never/ready", ""); status != http.StatusBadRequest || errorOf(t, body) != "Model version not ready" {
				t.Errorf("never: status %d: %s", status, body)
			}
			// Models that are not ready must serve requests nevertheless.
			for _, name := range []string{"never", "one", "raises"} {
				if status, body := s.infer(name, 5); status != http.StatusOK {
					t.Errorf("%s: status %d: %s", name, status, body)
				}
			}
			for line, times := range map[string]int{
				"Model 'never' version 1 is not ready: Model 'never_0' is not ready (user-defined check failed).": 3,
				"Model 'one' version 1 is not ready: is_ready() must return a boolean value":                      2,
				"Model 'raises' version 1 is not ready: ValueError: not well":                                     2,
			} {
				if got := s.printed(line, times); got != times {
					t.Errorf("the log has %d times %q, want %d", got, line, times)
				}
			}
		})
	}
}

// calling is a function that calls another model and returns its response.
const calling = `

def call(model, inputs):
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"], inputs=inputs).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return response


`

// TestReadinessGivesUpOnASlowModel checks a model whose is_ready waits for a file. It must not be
// ready before the file exists, and ready after that.
func TestReadinessGivesUpOnASlowModel(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "answer")
			s := launch(t, python.Path, writeFiles(t, map[string]string{
				"slow/config.pbtxt": oneFloat,
				"slow/1/model.py":   asked(fmt.Sprintf("while not os.path.exists(%q):\n            time.sleep(0.005)\n        return True", mark)),
			}), "--log-verbose=1", "--strict-readiness=false", "--backend-config=python,ready-timeout-seconds=1")
			s.waitReady()
			if status, body := s.request("GET", "/v2/models/slow/ready", ""); status != http.StatusBadRequest || errorOf(t, body) != "Model version not ready" {
				t.Errorf("before its answer: status %d: %s", status, body)
			}
			if line := "Model 'slow' version 1 is not ready: Timed out waiting for user-defined is_ready() response"; !s.prints(line) {
				t.Errorf("the log has no %q", line)
			}
			if err := os.WriteFile(mark, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s.until("ready, as the model has answered", func() bool {
				status, _ := s.request("GET", "/v2/models/slow/ready", "")
				return status == http.StatusOK
			})
			if got := s.ask("ready", "slow")["slow"]; string(got[0]) != "true" || string(got[1]) != "true" {
				t.Errorf("after its answer: got ready %s, want true", got)
			}
		})
	}
}

// TestReadinessOfCalledModelsIsAsked checks that a BLS request to a model that says it is not ready
// fails, although clients can use the model. is_ready may make BLS requests itself.
func TestReadinessOfCalledModelsIsAsked(t *testing.T) {
	caller := func(target string) string {
		return lifecycleHead + calling + "class TritonPythonModel:\n    def execute(self, requests):\n        return [call('" + target + "', r.inputs()) for r in requests]\n"
	}
	checking := func(target string) string {
		return strings.Replace(asked("call('"+target+"', [pb_utils.Tensor('INPUT0', np.zeros(1, np.float32))]); return True"), "class Triton", calling[1:]+"class Triton", 1)
	}
	files := map[string]string{}
	for name, model := range map[string]string{
		"yes": asked("return True"), "never": asked("return False"), "calls_yes": caller("yes"), "calls_never": caller("never"),
		"checks_yes": checking("yes"), "checks_never": checking("never"),
	} {
		files[name+"/config.pbtxt"] = oneFloat
		files[name+"/1/model.py"] = model
	}
	s := launch(t, testkit.Python(t).Path, writeFiles(t, files), "--log-verbose=1", "--strict-readiness=false")
	s.waitReady()
	if status, body := s.infer("calls_yes", 5); status != http.StatusOK || !strings.Contains(body, `"data":[5`) {
		t.Errorf("calls_yes: status %d: %s", status, body)
	}
	want := "Model never - Error when running inference: Failed for execute the inference request. Model 'never' is not ready."
	if status, body := s.infer("calls_never", 5); status != http.StatusInternalServerError || !strings.Contains(errorOf(t, body), want) {
		t.Errorf("calls_never: status %d: %s, want %q", status, body, want)
	}
	for name, want := range map[string]string{"checks_yes": "true", "checks_never": "false"} {
		if got := s.ask("ready", name)[name]; string(got[0]) != want || string(got[1]) != want {
			t.Errorf("%s: got ready %s, want %s", name, got, want)
		}
	}
	// Only the timeout ends a check that waits for itself.
	circle := launch(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"checks_itself/config.pbtxt": oneFloat, "checks_itself/1/model.py": checking("checks_itself"),
	}), "--strict-readiness=false", "--backend-config=python,ready-timeout-seconds=1")
	circle.waitReady()
	if got := circle.ask("ready", "checks_itself")["checks_itself"]; string(got[0]) != "false" || string(got[1]) != "false" {
		t.Errorf("checks_itself: got ready %s, want false", got)
	}
	if status, body := circle.infer("checks_itself", 5); status != http.StatusOK {
		t.Errorf("checks_itself: status %d: %s", status, body)
	}
}

// TestStrictReadinessCountsEveryModel checks that the server is not ready while one of its models
// is not.
func TestStrictReadinessCountsEveryModel(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": oneFloat + "instance_group [ { count: 2 } ]",
		"m/1/model.py": strings.Replace(asked("return self.name.endswith('0') or os.path.exists(os.path.join(pb_utils.get_model_dir(), 'well'))"),
			"    def execute", "    def initialize(self, args):\n        self.name = args['model_instance_name']\n\n    def execute", 1),
	})
	s := launch(t, testkit.Python(t).Path, root, "--log-verbose=1")
	s.until("listening", func() bool {
		status, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil && status == http.StatusOK
	})
	for name, answers := range s.ask("ready", "", "m") {
		if string(answers[0]) != "false" || string(answers[1]) != "false" {
			t.Errorf("%q: got ready %s, want false", name, answers)
		}
	}
	if want := "Model 'm' version 1 is not ready: Model 'm_0_1' is not ready (user-defined check failed)."; s.printed(want, 4) != 4 {
		t.Errorf("the log has not four times %q", want)
	}
	if err := os.WriteFile(filepath.Join(root, "m", "1", "well"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, answers := range s.ask("ready", "", "m") {
		if string(answers[0]) != "true" || string(answers[1]) != "true" {
			t.Errorf("%q: got ready %s, want true", name, answers)
		}
	}
}

// TestStubIsKilledInEachPhase kills a stub in each method of its model. The load or request must
// fail, a stub that was serving must be restarted, and no resources may be left.
func TestStubIsKilledInEachPhase(t *testing.T) {
	testkit.Story(t)
	method := func(name, arguments string) string {
		return lifecycleHead + "class TritonPythonModel:\n    " + map[bool]string{true: "@staticmethod\n    "}[name == "auto_complete_config"] +
			"def " + name + "(" + arguments + "):\n        stop('phase')\n\n" + map[bool]string{true: "    def execute(self, requests):\n        return answer(requests)\n"}[name != "execute"]
	}
	for _, c := range []struct {
		name, model string
		reason      string // of a failed load
		status      int    // of the waiting request
	}{
		{name: "import", model: lifecycleHead + "stop('phase')\n", reason: "Internal: Stub process '' is not healthy."},
		{name: "auto_complete_config", model: method("auto_complete_config", "config"), reason: "Internal: Stub process '' is not healthy."},
		{name: "constructor", model: method("__init__", "self"), reason: "Internal: Stub process 'm_0' is not healthy."},
		{name: "initialize", model: method("initialize", "self, args"), reason: "Internal: Stub process 'm_0' is not healthy."},
		{name: "execute", model: method("execute", "self, requests"), status: http.StatusInternalServerError},
		{name: "is_ready", model: method("is_ready", "self"), status: http.StatusBadRequest},
		{name: "finalize", model: method("finalize", "self")},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": c.model})
			s := launch(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--strict-readiness=false", "--exit-on-error=false")
			s.waitReady()
			before := s.holds()
			load := make(chan string, 1)
			go func() {
				_, body, _ := s.try("POST", "/v2/repository/models/m/load", nil, nil)
				load <- body
			}()
			answered := make(chan int, 1)
			if c.reason == "" {
				if body := <-load; body != "" {
					t.Fatalf("load: %s", body)
				}
				go func() {
					switch c.name {
					case "execute":
						status, _, _ := s.try("POST", "/v2/models/m/infer", nil, []byte(fmt.Sprintf(inferBody, 1)))
						answered <- status
					case "is_ready":
						status, _, _ := s.try("GET", "/v2/models/m/ready", nil, nil)
						answered <- status
					case "finalize":
						_, _, _ = s.try("POST", "/v2/repository/models/m/unload", nil, nil)
						answered <- 0
					}
				}()
			}
			var pid int
			mark := filepath.Join(root, "m", "phase")
			testkit.Eventually(t, startLimit, func() bool {
				text, err := os.ReadFile(mark)
				pid, _ = strconv.Atoi(string(text))
				return err == nil
			})
			if err := os.Remove(mark); err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			switch {
			case c.reason != "":
				want := "load failed for model 'm': version 1 is at UNAVAILABLE state: " + c.reason + ";\n"
				if got := errorOf(t, <-load); got != want {
					t.Errorf("load: got %q, want %q", got, want)
				}
			default:
				if status := <-answered; status != c.status {
					t.Errorf("status %d, want %d", status, c.status)
				}
			}
			if c.name == "finalize" {
				testkit.Eventually(t, startLimit, func() bool { return s.index()["m"].Reason == "unloaded" })
			}
			if c.reason == "" && c.name != "finalize" {
				// A new stub must have started, and the model can be unloaded.
				testkit.Eventually(t, startLimit, func() bool { stubs := s.stubs(); return len(stubs) == 1 && stubs[0] != pid })
				if status, body := s.request("POST", "/v2/repository/models/m/unload", ""); status != http.StatusOK {
					t.Fatalf("unload: status %d: %s", status, body)
				}
			}
			var after held
			// The template, which was started with the first stub, stays.
			if !testkit.Within(startLimit, func() bool {
				after = s.holds()
				return len(s.stubs()) == 0 && after.mappings <= before.mappings && after.processes <= before.processes+1
			}) {
				t.Errorf("the server holds %v and stubs %v, before it held %v", after, s.stubs(), before)
			}
		})
	}
}
