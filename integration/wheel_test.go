package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestWheelServesFromItsEnvironment installs the wheel into a new environment and serves from
// there. Models must run with the environment's Python.
func TestWheelServesFromItsEnvironment(t *testing.T) {
	testkit.Story(t)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python, dir := testkit.Python(t).Path, t.TempDir()
	run := func(line ...string) string {
		t.Helper()
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = append(os.Environ(), "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, output)
		}
		return strings.TrimSpace(string(output))
	}
	wheel := run(python, "../.ci/wheel", binary, "v1.2.3-4-gabcdef0", dir, runtime.GOARCH)
	if !strings.HasPrefix(filepath.Base(wheel), "nereid-1.2.3.post4-py3-none-manylinux2014_") {
		t.Errorf("the wheel is %s, want version 1.2.3.post4", wheel)
	}

	home := filepath.Join(dir, "home")
	run(python, "-m", "venv", home)
	its := filepath.Join(home, "bin", "python3")
	run(its, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
	// numpy, which the wheel requires, comes from the tests' environment.
	numpy := run(python, "-c", "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))")
	site := run(its, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	if err := os.WriteFile(filepath.Join(site, "numpy.pth"), []byte(numpy+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, typed := range []string{"triton_python_backend_utils-stubs/__init__.pyi", "c_python_backend_utils-stubs/__init__.pyi", "nereid_testing/py.typed"} {
		if _, err := os.Stat(filepath.Join(site, typed)); err != nil {
			t.Errorf("the environment has no types: %v", err)
		}
	}
	repository := writeFiles(t, map[string]string{
		"where/config.pbtxt": `backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }`,
		"where/1/model.py":   "import sys\n" + returning(`pb_utils.Tensor("OUT", np.array([sys.prefix], object))`),
	})
	said := run(its, "-c", "import triton_python_backend_utils\nfrom nereid_testing import Server, outputs\n"+
		"with Server() as server:\n    print(outputs(server.load('"+repository+"/where').infer({'IN': [1]}))['OUT'].tolist())")
	if !strings.Contains(said, home) {
		t.Errorf("nereid_testing of the wheel: the model says %s, want %s", said, home)
	}

	if said := run(filepath.Join(home, "bin", "tritonserver"), "--version"); !strings.HasPrefix(said, "nereid ") {
		t.Errorf("tritonserver --version: got %s", said)
	}

	s := launchProgram(t, []string{filepath.Join(home, "bin", "nereid"), "serve", repository}, "", repository)
	s.waitReady()
	_, body := s.request("POST", "/v2/models/where/infer", `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`)
	if got := strings.ReplaceAll(body, `\/`, "/"); !strings.Contains(got, `"data":["`+home+`"]`) {
		t.Errorf("got %s, want the environment %s", got, home)
	}
}

// TestUvxServes runs the server through uvx, without installation and offline. The numpy that the
// wheel requires is a wheel that refers to the tests' numpy.
func TestUvxServes(t *testing.T) {
	testkit.Story(t)
	uvx := filepath.Join(testkit.Environment(t, "tools"), "bin", "uvx")
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python, dir := testkit.Python(t).Path, t.TempDir()
	const numpyWheel = "import numpy, os, sys, zipfile\n" +
		"with zipfile.ZipFile(os.path.join(sys.argv[1], 'numpy-2.0-py3-none-any.whl'), 'w') as z:\n" +
		"    z.writestr('numpy_of_tests.pth', os.path.dirname(os.path.dirname(numpy.__file__)) + '\\n')\n" +
		"    z.writestr('numpy-2.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: numpy\\nVersion: 2.0\\n')\n" +
		"    z.writestr('numpy-2.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n" +
		"    z.writestr('numpy-2.0.dist-info/RECORD', '')\n"
	output, err := exec.Command(python, "-c", numpyWheel, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	wheel, err := exec.Command(python, "../.ci/wheel", binary, "v1.2.3", dir, runtime.GOARCH).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"UV_CACHE_DIR": filepath.Join(dir, "cache"), "UV_TOOL_DIR": filepath.Join(dir, "tools"), "UV_PYTHON_DOWNLOADS": "never"} {
		t.Setenv(name, value)
	}
	repository := writeFiles(t, map[string]string{
		"where/config.pbtxt": `backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }`,
		"where/1/model.py":   "import sys\n" + returning(`pb_utils.Tensor("OUT", np.array([sys.prefix], object))`),
	})
	s := launchProgram(t, []string{
		uvx, "--offline", "--no-config", "--no-index", "--find-links", dir, "--python", python, "--from", strings.TrimSpace(string(wheel)), "nereid", "serve", repository,
	}, "", repository)
	s.waitReady()
	_, body := s.request("POST", "/v2/models/where/infer", `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`)
	if got := strings.ReplaceAll(body, `\/`, "/"); !strings.Contains(got, `"data":["`+dir) {
		t.Errorf("got %s, want the environment that uv has made below %s", got, dir)
	}
}
