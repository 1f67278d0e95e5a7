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

// tellingModel tells in which environment it is, and has its config completed there.
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

// told is what a tellingModel says.
type told struct {
	Python, Numpy, Prefix, Shell string
	PID                          int
	Environment                  map[string]string
}

// inEnvironment is the config of a model in an environment.
func inEnvironment(value string) string {
	return fmt.Sprintf("backend: \"python\"\nparameters { key: \"EXECUTION_ENV_PATH\" value { string_value: %q } }\n", value)
}

// asks a tellingModel; the error is the server's, or that of the way.
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

// mustAsk is asks without an error.
func (s *runningServer) mustAsk(model string) told {
	s.t.Helper()
	t, err := s.asks(model)
	if err != nil {
		s.t.Fatalf("%s: %v", model, err)
	}
	return t
}

// versionsOf returns the versions of the Python of an environment and of its numpy.
func versionsOf(t *testing.T, python string) (version, numpy string) {
	t.Helper()
	output, err := exec.Command(python, "-c", "import sys, numpy; print('%d.%d.%d' % sys.version_info[:3], numpy.__version__)").Output()
	fields := strings.Fields(string(output))
	if err != nil || len(fields) != 2 {
		t.Fatalf("%s: got %q, error %v", python, output, err)
	}
	return fields[0], fields[1]
}

// TestModelsOnTheirOwnPythons serves models on the oldest Python with numpy 1, on the newest,
// and on a relocated one, at once: venvs, an interpreter by its path, an unpacked
// environment, beside a model on the interpreter of the server.
func TestModelsOnTheirOwnPythons(t *testing.T) {
	python := testkit.Python(t)
	environments := map[string]string{ // by model: what the parameter names
		"oldest":    testkit.Environment(t, "uv-oldest"),
		"newest":    filepath.Join(testkit.Environment(t, "uv-newest"), "bin", "python"),
		"conda":     testkit.Environment(t, "conda"),
		"python314": testkit.Environment(t, "standalone"),
	}
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
	for _, flags := range [][]string{nil, {"--backend-config=python,stub-template=off"}} {
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
