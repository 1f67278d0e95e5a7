package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestWheelServesFromItsEnvironment installs the wheel into new environments of the oldest, a
// middle and the newest Python, and serves from there. Models must run with the environment's
// Python, and with the accelerator.
func TestWheelServesFromItsEnvironment(t *testing.T) {
	testkit.Story(t)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
	t.Setenv("NEREID_ACCELERATOR", "on")
	wheel := strings.TrimSpace(runTool(t, testkit.Python(t).Path, "../.ci/wheel", binary, "1.2.3+abcdef0", t.TempDir(), runtime.GOARCH))
	if !strings.HasPrefix(filepath.Base(wheel), "nereid_serving-1.2.3+abcdef0-py3-none-manylinux2014_") {
		t.Errorf("the wheel is %s, want version 1.2.3+abcdef0", wheel)
	}
	all := testkit.Pythons(t)
	for _, python := range slices.Compact([]testkit.Interpreter{all[0], all[len(all)/2], all[len(all)-1]}) {
		t.Run(python.String(), func(t *testing.T) { serveFromWheel(t, wheel, python.Path) })
	}
}

// serveFromWheel installs a wheel into a new environment of a Python, and checks the modules and
// programs there.
func serveFromWheel(t *testing.T, wheel, python string) {
	home := filepath.Join(t.TempDir(), "home")
	runTool(t, python, "-m", "venv", home)
	its := filepath.Join(home, "bin", "python3")
	runTool(t, its, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
	// numpy, which the wheel requires, comes from the tests' environment.
	numpy := runTool(t, python, "-c", "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))")
	site := strings.TrimSpace(runTool(t, its, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
	if err := os.WriteFile(filepath.Join(site, "numpy.pth"), []byte(numpy), 0o644); err != nil {
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
	said := runTool(t, its, "-c", "import triton_python_backend_utils\nfrom nereid_testing import Server, outputs\n"+
		"with Server() as server:\n    print(outputs(server.load('"+repository+"/where').infer({'IN': [1]}))['OUT'].tolist())")
	if !strings.Contains(said, home) {
		t.Errorf("nereid_testing of the wheel: the model says %s, want %s", said, home)
	}

	if said := runTool(t, filepath.Join(home, "bin", "tritonserver"), "--version"); !strings.HasPrefix(said, "nereid ") {
		t.Errorf("tritonserver --version: got %s", said)
	}

	s := launchProgram(t, []string{filepath.Join(home, "bin", "nereid"), "serve", repository}, "", repository)
	s.waitReady()
	_, body := s.request("POST", "/v2/models/where/infer", `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`)
	if got := strings.ReplaceAll(body, `\/`, "/"); !strings.Contains(got, `"data":["`+home+`"]`) {
		t.Errorf("got %s, want the environment %s", got, home)
	}
	if _, err := os.Stat("../stub/pb_stub/_accelerator.abi3.so"); err != nil {
		testkit.NotCompiled(t)
	}
	if !s.prints("accelerator=on") {
		t.Error("the server has not printed accelerator=on")
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
	wheel, err := exec.Command(python, "../.ci/wheel", binary, "1.2.3", dir, runtime.GOARCH).Output()
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
