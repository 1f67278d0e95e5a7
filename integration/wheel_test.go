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

// TestWheelServesFromItsEnvironment installs the wheel into a fresh environment and serves from
// there, with the Python that the environment has.
func TestWheelServesFromItsEnvironment(t *testing.T) {
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
	// numpy, which the wheel requires, comes from where the tests have it.
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

	s := launchProgram(t, []string{filepath.Join(home, "bin", "nereid"), "serve", repository}, "", repository)
	s.waitReady()
	_, body := s.request("POST", "/v2/models/where/infer", `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`)
	if got := strings.ReplaceAll(body, `\/`, "/"); !strings.Contains(got, `"data":["`+home+`"]`) {
		t.Errorf("got %s, want the environment %s", got, home)
	}
}
