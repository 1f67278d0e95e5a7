package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// tellingModel reports its environment. Its auto-completed config has its Python's version.
const tellingModel = `
import ctypes, json, os, subprocess, sys
import numpy as np
import triton_python_backend_utils as pb_utils

PYTHON = "%d.%d.%d" % sys.version_info[:3]


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "PYTHON" + PYTHON, "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def initialize(self, args):
        shell = subprocess.run(["/bin/sh", "-c", 'echo "$LD_LIBRARY_PATH"'], stdout=subprocess.PIPE, check=True)
        self.told = {
            "python": PYTHON, "numpy": np.__version__, "prefix": sys.prefix, "pid": os.getpid(), "shell": shell.stdout.decode().strip(),
            "environment": dict(os.environ),
        }
        print("Python version is %d.%d, NumPy version is %s" % (sys.version_info[:2] + (np.__version__,)), flush=True)

    def execute(self, requests):
        out = pb_utils.Tensor("OUT", np.array([json.dumps(self.told).encode()], object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
`

// told is the report of a tellingModel.
type told struct {
	Python, Numpy, Prefix, Shell string
	PID                          int
	Environment                  map[string]string
}

// inEnvironment returns the config of a model with an EXECUTION_ENV_PATH.
func inEnvironment(value string) string {
	return fmt.Sprintf("backend: \"python\"\nparameters { key: \"EXECUTION_ENV_PATH\" value { string_value: %q } }\n", value)
}

// asks queries a tellingModel. The error is the server's or a transport error.
func (s *runningServer) asks(model string) (told, error) {
	s.t.Helper()
	const body = `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{"name":"OUT"}]}`
	status, text, err := s.try("POST", "/v2/models/"+model+"/infer", nil, []byte(body))
	if err != nil {
		return told{}, err
	}
	var answer struct {
		Outputs []struct{ Data []string }
	}
	var t told
	if status != http.StatusOK {
		return told{}, fmt.Errorf("status %d: %s", status, text)
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return told{}, err
	}
	return t, json.Unmarshal([]byte(answer.Outputs[0].Data[0]), &t)
}

// mustAsk is like asks but fails the test on an error.
func (s *runningServer) mustAsk(model string) told {
	s.t.Helper()
	t, err := s.asks(model)
	if err != nil {
		s.t.Fatalf("%s: %v", model, err)
	}
	return t
}

// versionsOf returns the versions of Python and numpy in an environment.
func versionsOf(t *testing.T, python string) (version, numpy string) {
	t.Helper()
	output, err := exec.Command(python, "-c", "import sys, numpy; print('%d.%d.%d' % sys.version_info[:3], numpy.__version__)").Output()
	fields := strings.Fields(string(output))
	if err != nil || len(fields) != 2 {
		t.Fatalf("%s: got %q, error %v", python, output, err)
	}
	return fields[0], fields[1]
}

// TestModelsOnTheirOwnPythons serves models concurrently on the oldest Python with numpy 1, on the
// newest, and on the server's own. A virtual environment and the path of an interpreter must both
// work.
func TestModelsOnTheirOwnPythons(t *testing.T) {
	testkit.Story(t)
	servedAtOnce(t, map[string]string{
		"oldest": testkit.Environment(t, "uv-oldest"),
		"newest": filepath.Join(testkit.Environment(t, "uv-newest"), "bin", "python"),
	}, nil, []string{"--backend-config=python,stub-template=off"})
}

// TestModelsOnRelocatedPythons checks Pythons that were moved after their build: one in the layout
// of conda, and a standalone one.
func TestModelsOnRelocatedPythons(t *testing.T) {
	testkit.Story(t)
	for _, name := range []string{"conda", "standalone"} {
		t.Run(name, func(t *testing.T) { servedAtOnce(t, map[string]string{name: testkit.Environment(t, name)}, nil) })
	}
}

// servedAtOnce serves one model in each of the environments, named by the key, and one on the
// server's Python. It repeats this with each set of flags.
func servedAtOnce(t *testing.T, environments map[string]string, sets ...[]string) {
	t.Helper()
	python := testkit.Python(t)
	pythons := map[string]string{"own": python.Path}
	files := map[string]string{"own/1/model.py": tellingModel}
	for model, value := range environments {
		pythons[model] = value
		if model != "newest" {
			pythons[model] = filepath.Join(value, "bin", "python")
		}
		files[model+"/config.pbtxt"], files[model+"/1/model.py"] = inEnvironment(value), tellingModel
	}
	root := writeFiles(t, files)
	t.Setenv("MY_ENV", "of the server")
	t.Setenv("LD_LIBRARY_PATH", "/of/the/server")
	for _, flags := range sets {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			s := start(t, python.Path, root, append(flags, "--log-verbose=1")...)
			var arguments []string
			for model, path := range pythons {
				version, numpy := versionsOf(t, path)
				arguments = append(arguments, model+"="+version+","+numpy)
			}
			s.runClient("environments.py", arguments...)
			for model, value := range environments {
				got := s.mustAsk(model)
				directory, bin := value, filepath.Join(value, "bin")
				if model == "newest" {
					directory, bin = filepath.Dir(filepath.Dir(value)), filepath.Dir(value)
				}
				if got.Environment["MY_ENV"] != "of the server" || got.Environment["VIRTUAL_ENV"] != directory || !strings.HasPrefix(got.Environment["PATH"], bin+":") {
					t.Errorf("%s: its variables are %v", model, got.Environment)
				}
				if got.Shell != "/of/the/server" || got.Environment["LD_LIBRARY_PATH"] != "/of/the/server" {
					t.Errorf("%s: programs that it starts search libraries in %q, want those of the server alone", model, got.Shell)
				}
				if _, told := got.Environment["NEREID_LIBRARY_PATH"]; told {
					t.Errorf("%s sees a variable that is between server and stub", model)
				}
				environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", got.PID))
				if want := "LD_LIBRARY_PATH=" + directory + "/lib:/of/the/server\x00"; err != nil || !strings.Contains(string(environ), want) {
					t.Errorf("%s was started with the variables %q (error %v), want %q", model, environ, err, want)
				}
				if want := "Using Python execution env " + value; !s.prints(want) {
					t.Errorf("the log has no %q", want)
				}
				if want := "Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path. Path: " + value; !s.prints(want) {
					t.Errorf("the log has no %q", want)
				}
				if want := fmt.Sprintf("NumPy version is %s", got.Numpy); !s.prints(want) {
					t.Errorf("what model %s printed is not there: %q", model, want)
				}
			}
		})
	}
}

// streamingModel sends its Python version three times.
const streamingModel = `
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(3):
                version = np.array(["3.%d" % sys.version_info[1]], object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", version)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// streamCallingModel calls a streamingModel and returns its responses, followed by its own version.
const streamCallingModel = `
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        call = pb_utils.InferenceRequest(model_name="streams", requested_output_names=["OUT"], inputs=request.inputs())
        heard = [r.output_tensors()[0].as_numpy()[0].decode() for r in call.exec(decoupled=True) if r.output_tensors()]
        told = " ".join(heard + ["3.%d" % sys.version_info[1]])
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([told], object))])
`

// TestCallsBetweenEnvironments checks that a model in one environment can call a decoupled model in
// another.
func TestCallsBetweenEnvironments(t *testing.T) {
	caller, callee := testkit.Environment(t, "uv-newest"), testkit.Environment(t, "uv-oldest")
	root := writeFiles(t, map[string]string{
		"calls/config.pbtxt": inEnvironment(caller) + lateConfig, "calls/1/model.py": streamCallingModel,
		"streams/config.pbtxt": inEnvironment(callee) + lateConfig + "model_transaction_policy { decoupled: true }", "streams/1/model.py": streamingModel,
	})
	s := start(t, testkit.Python(t).Path, root)
	minor := func(environment string) string {
		version, _ := versionsOf(t, environment+"/bin/python")
		return version[:strings.LastIndexByte(version, '.')]
	}
	want := fmt.Sprintf(`"data":["%[1]s %[1]s %[1]s %[2]s"]`, minor(callee), minor(caller))
	status, body := s.request("POST", "/v2/models/calls/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
	if status != http.StatusOK || !strings.Contains(body, want) {
		t.Errorf("status %d: %s, want %s", status, body, want)
	}
}

// TestPackedCondaEnvironment runs a model in an archive made by conda-pack. The archive must be
// unpacked and relocated, its variables must be set, and its programs must run.
func TestPackedCondaEnvironment(t *testing.T) {
	testkit.Story(t)
	archive := testkit.Environment(t, "conda.tar.gz")
	root := writeFiles(t, map[string]string{"m/config.pbtxt": inEnvironment(archive), "m/1/model.py": tellingModel})
	environments := filepath.Join(t.TempDir(), "environments")
	s := start(t, testkit.Python(t).Path, root, cacheFlag(environments))
	got := s.mustAsk("m")
	directory := got.Environment["VIRTUAL_ENV"]
	if filepath.Dir(directory) != environments || got.Prefix != directory {
		t.Errorf("the environment is %s, sys.prefix %s, want one directory in %s", directory, got.Prefix, environments)
	}
	version, numpy := versionsOf(t, testkit.Environment(t, "conda")+"/bin/python")
	if got.Python != version || got.Numpy != numpy {
		t.Errorf("Python %s with numpy %s, want %s with %s", got.Python, got.Numpy, version, numpy)
	}
	for name, want := range map[string]string{
		"CONDA_PREFIX": directory, "HELLO_ROOT": directory + "/share", "HELLO_PLAIN": "plain", "HELLO_STATE": "state", "HELLO_SHELL": "",
	} {
		if got := got.Environment[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	hello := exec.Command(directory + "/bin/hello")
	hello.Env = []string{"PATH=" + got.Environment["PATH"]}
	output, err := hello.CombinedOutput()
	if want := "hello from " + directory + "\n"; err != nil || string(output) != want {
		t.Errorf("bin/hello printed %q, error %v, want %q", output, err, want)
	}
}

// TestPythonBasedBackendHasItsEnvironment packs a backend's environment next to its model.py.
// Models must use it unless they name another.
func TestPythonBasedBackendHasItsEnvironment(t *testing.T) {
	other := testkit.Environment(t, "uv-oldest")
	backends := writeFiles(t, map[string]string{"llm/model.py": tellingModel})
	pack(t, backends+"/llm/pb_exec_env_model.py.tar.gz", smallEnvironment(t, "of the backend"))
	root := writeFiles(t, map[string]string{
		"first/config.pbtxt": `backend: "llm"`, "first/1/weights": "",
		"second/config.pbtxt": strings.Replace(inEnvironment(other), `"python"`, `"llm"`, 1), "second/1/weights": "",
	})
	s := start(t, testkit.Python(t).Path, root, "--backend-directory="+backends, cacheFlag(t.TempDir()))
	if got := s.marker("first"); got != "of the backend" {
		t.Errorf("environment %q, want that of the backend", got)
	}
	if got := s.mustAsk("second").Environment["VIRTUAL_ENV"]; got != other {
		t.Errorf("a model that names its environment: got %q, want %q", got, other)
	}
}

// TestEnvironmentsThatCannotRun checks that the log names the missing part of an environment and
// the command that installs it, and that the model loads after that.
func TestEnvironmentsThatCannotRun(t *testing.T) {
	empty := t.TempDir()
	base, err := exec.Command(testkit.Python(t).Path, "-c", "import sys; print(sys._base_executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "bare")
	if output, err := exec.Command(strings.TrimSpace(string(base)), "-m", "venv", "--without-pip", bare).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	old := writeFiles(t, map[string]string{"bin/python": "#!/bin/sh\nexit 3\n", "pyvenv.cfg": "version = 3.7.9\n"})
	if err := os.Chmod(old+"/bin/python", 0o755); err != nil {
		t.Fatal(err)
	}
	root := writeFiles(t, map[string]string{
		"empty/config.pbtxt": inEnvironment(empty), "empty/1/model.py": tellingModel,
		"bare/config.pbtxt": inEnvironment(bare), "bare/1/model.py": tellingModel,
		"old/config.pbtxt": inEnvironment(old), "old/1/model.py": tellingModel,
		"missing/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env"), "missing/1/model.py": tellingModel,
	})
	s := launch(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false", "--strict-readiness=false")
	s.waitReady()
	index := s.index()
	for model, want := range map[string][]string{
		"empty":   {"Path " + empty + "/bin/activate does not exist. The Python environment should contain an 'activate' script.", "bin/python"},
		"bare":    {bare + " has no numpy", "-m pip install numpy"},
		"old":     {"is 3.7.9, want 3.8 or later", "uv venv"},
		"missing": {"Failed to get the canonical path for " + root + "/missing/env."},
	} {
		if got, want := index[model].Reason, "Internal: the Python environment of model '"+model+"' cannot be used, the server's log has the reason"; got != want {
			t.Errorf("%s: got reason %q, want %q", model, got, want)
		}
		for _, text := range want {
			if !s.prints(text) {
				t.Errorf("%s: the log does not have %q", model, text)
			}
		}
	}
	packages, err := exec.Command(testkit.Python(t).Path, "-c", "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))").Output()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(bare + "/lib/python3.*/site-packages")
	if err != nil || len(found) != 1 {
		t.Fatalf("site-packages of %s: got %v, error %v", bare, found, err)
	}
	if err := os.WriteFile(found[0]+"/numpy.pth", packages, 0o644); err != nil {
		t.Fatal(err)
	}
	s.mustLoad("bare")
	if got := s.mustAsk("bare").Prefix; got != bare {
		t.Errorf("sys.prefix is %s, want %s", got, bare)
	}
}

// TestRequirementsBecomeTheEnvironment checks that env-build builds an environment from
// requirements.txt, once for two models. Without the setting, the file must have no effect.
func TestRequirementsBecomeTheEnvironment(t *testing.T) {
	testkit.Story(t)
	wheels, tools := testkit.Environment(t, "wheels"), testkit.Environment(t, "tools")
	python := testkit.Python(t)
	if fit, _ := filepath.Glob(fmt.Sprintf("%s/*-cp3%d-*", wheels, python.Minor)); len(fit) == 0 {
		t.Skipf("the wheels in %s are for another Python than %v", wheels, python)
	}
	root := writeFiles(t, map[string]string{
		"first/1/model.py": tellingModel, "first/requirements.txt": "# nothing but numpy, which comes by itself\n",
		"second/1/model.py": tellingModel, "second/requirements.txt": "# nothing but numpy, which comes by itself\n",
		"plain/1/model.py": tellingModel,
	})
	programs := writeFiles(t, map[string]string{"uv.toml": "no-index = true\nfind-links = [\"" + wheels + "\"]\n"})
	if err := os.Symlink(tools+"/bin/uv", programs+"/uv"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Setenv("UV_CONFIG_FILE", programs+"/uv.toml")
	t.Setenv("UV_NO_CACHE", "1")
	environments := filepath.Join(t.TempDir(), "environments")
	s := start(t, python.Path, root, cacheFlag(environments), "--backend-config=python,env-build=true", "--log-verbose=1")
	first, second, plain := s.mustAsk("first").Prefix, s.mustAsk("second").Prefix, s.mustAsk("plain").Prefix
	if first != second || filepath.Dir(first) != environments || plain == first {
		t.Errorf("first and second run in %s and %s, want one in %s; plain runs in %s", first, second, environments, plain)
	}
	if n := s.printed("Made Python execution env from ", 1); n != 1 {
		t.Errorf("made %d environments, want 1", n)
	}
	s.stop()
	s = start(t, python.Path, root, cacheFlag(environments))
	if got := s.mustAsk("first").Prefix; got != plain {
		t.Errorf("without env-build: first runs in %s, want %s", got, plain)
	}
}
