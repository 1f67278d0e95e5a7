package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// functionsFile has functions of each form, and is in a folder with a module that it imports.
var functionsFile = map[string]string{
	"app.py": `
import asyncio
from typing import AsyncIterator, Iterator, List
import nereid
import helping

@nereid.model(max_batch_size=32, instances=2)
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    if not name:
        raise nereid.InputError("the name is empty")
    return helping.hello(name) * times

@nereid.model
def count(to: int) -> Iterator[int]:
    yield from range(to)

@nereid.model
async def words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word

waiting: List[int] = []

@nereid.model(max_batch_size=2)
async def meet(x: int) -> int:
    waiting.append(x)
    while len(waiting) < 2:
        await asyncio.sleep(0)
    return x + 1

together: List[int] = []

@nereid.model
async def both(x: int) -> int:
    together.append(x)
    while len(together) < 2:
        await asyncio.sleep(0)
    return x

@nereid.model(max_batch_size=8, batch=True)
def double(x: nereid.Array["float32", 2], scale: float = 2) -> nereid.Array["float32", 2]:
    return x * scale[:, None]

@nereid.model
class Divider:
    def setup(self) -> None:
        self.calls = 0

    def __call__(self, by: int) -> List[float]:
        self.calls += 1
        return [self.calls, 1 / by]
`,
	"helping.py": "def hello(name):\n    return f'Hello {name}! '\n",
}

// functionRequests are requests to these functions, with the status and a part of the reply.
var functionRequests = []struct {
	path, body string
	status     int
	want       string
}{
	{"greet/generate", `{"name": "Ada"}`, 200, `"output":"Hello Ada! "`},
	{"greet/generate", `{"name": "Ada", "times": 2}`, 200, `"output":"Hello Ada! Hello Ada! "`},
	{"greet/infer", `{"inputs": [{"name": "name", "shape": [2, 1], "datatype": "BYTES", "data": ["Ada", "Bob"]}]}`, 200, `"data":["Hello Ada! ","Hello Bob! "]`},
	{"greet/generate", `{"name": ""}`, 400, `the name is empty`},
	{"greet/generate", `{"times": 2}`, 400, `input \"name\" is missing`},
	{"count/generate_stream", `{"to": 2}`, 200, "\"output\":0}\n\ndata: {\"model_name\":\"count\",\"model_version\":\"1\",\"output\":1}"},
	{"words/generate_stream", `{"text": "a b"}`, 200, "\"output\":\"a\"}\n\ndata: {\"model_name\":\"words\",\"model_version\":\"1\",\"output\":\"b\"}"},
	{"meet/infer", `{"inputs": [{"name": "x", "shape": [2, 1], "datatype": "INT64", "data": [1, 2]}]}`, 200, `"data":[2,3]`},
	{"double/infer", `{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}]}`, 200, `"data":[2.0,4.0,6.0,8.0]`},
	{"divider/generate", `{"by": 2}`, 200, `"output":[1.0,0.5]`},
	{"divider/generate", `{"by": 0}`, 400, `ZeroDivisionError: `},
}

func askFunctions(t *testing.T, s *runningServer) {
	t.Helper()
	for _, test := range functionRequests {
		if status, body := s.request("POST", "/v2/models/"+test.path, test.body); status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s %s: got %d and %s, want %d and %s", test.path, test.body, status, body, test.status, test.want)
		}
	}
}

// TestFunctionsAreServed serves a file of functions. While the server runs with --dev, it changes a
// function, its annotations and the set of functions.
func TestFunctionsAreServed(t *testing.T) {
	folder := writeFiles(t, functionsFile)
	file := filepath.Join(folder, "app.py")
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	s := launchProgram(t, []string{binary, "serve", file}, testkit.Python(t).Path, t.TempDir(), "--dev")
	s.waitReady()
	askFunctions(t, s)
	// Two calls of a coroutine function in one process wait for each other.
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if status, body, err := s.try("POST", "/v2/models/both/generate", nil, []byte(`{"x": 1}`)); err != nil || status != http.StatusOK {
				t.Errorf("got %d and %s, error %v", status, body, err)
			}
		})
	}
	calls.Wait()
	if status, body := s.request("GET", "/openapi.json", ""); status != http.StatusOK || !strings.Contains(body, `"description":"Greet somebody.\n\nPlatform python`) {
		t.Errorf("/openapi.json: got %d and %s, want the docstring of greet", status, body)
	}
	if !s.prints("line 52, in __call__") || strings.Contains(s.log.String(), "serving.py\", line") {
		t.Error("the log has no traceback that begins in app.py")
	}
	const more = `
@nereid.model
def triple(x: float) -> float:
    return 3 * x
`
	replaced := strings.NewReplacer("def greet(name: str, times: int = 1)", "def greet(name: str, times: int = 1, end: str = '')", "* times", "* times + end").Replace(functionsFile["app.py"])
	if err := os.WriteFile(file, []byte(replaced+more), 0o644); err != nil {
		t.Fatal(err)
	}
	s.until("changed", func() bool {
		status, body, err := s.try("POST", "/v2/models/greet/generate", nil, []byte(`{"name": "Ada", "end": "Bye."}`))
		return err == nil && status == http.StatusOK && strings.Contains(body, `"output":"Hello Ada! Bye."`)
	})
	s.until("extended", func() bool {
		status, body, err := s.try("POST", "/v2/models/triple/generate", nil, []byte(`{"x": 2}`))
		return err == nil && status == http.StatusOK && strings.Contains(body, `"output":6.0`)
	})
	// A mistake changes nothing, and its reason is printed.
	if err := os.WriteFile(file, []byte(functionsFile["app.py"]+strings.Replace(more, "x: float", "x", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.prints("triple: parameter x has no annotation") {
		t.Error("the mistake is not printed")
	}
	if status, body := s.request("POST", "/v2/models/greet/generate", `{"name": "Ada"}`); status != http.StatusOK {
		t.Errorf("after a mistake: got %d, %s", status, body)
	}
	s.stop()
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "nereid-functions-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, error %v", left, err)
	}
}

// builtFunctions runs nereid build, and removes the file and its folder.
func builtFunctions(t *testing.T, python string) (repository string) {
	t.Helper()
	folder := writeFiles(t, functionsFile)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	repository = filepath.Join(t.TempDir(), "models")
	got := runTool(t, binary, "build", filepath.Join(folder, "app.py"), "--output="+repository, "--backend-config=python,python-executable="+python)
	if want := repository + " has greet, count, words, meet, both, double, divider; serve them with nereid serve " + repository + "\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	return repository
}

// TestBuiltFunctionsAreServed serves a built repository with each Python, after its source is gone.
func TestBuiltFunctionsAreServed(t *testing.T) {
	for _, python := range testkit.Pythons(t) {
		t.Run(python.String(), func(t *testing.T) {
			repository := builtFunctions(t, python.Path)
			askFunctions(t, start(t, python.Path, repository))
			binary, err := buildServer()
			if err != nil {
				t.Fatal(err)
			}
			output, err := exec.Command(binary, "check", repository, "--backend-config=python,python-executable="+python.Path).CombinedOutput()
			if err != nil {
				t.Errorf("nereid check: %v\n%s", err, output)
			}
		})
	}
}

// TestFilesOfFunctionsKeepTheirNames serves two files, and renames a function of the first to the
// name of a function of the second, which keeps serving.
func TestFilesOfFunctionsKeepTheirNames(t *testing.T) {
	const one, two = "import nereid\n@nereid.model\ndef a(x: int) -> int:\n    return 1\n", "import nereid\n@nereid.model\ndef b(x: int) -> int:\n    return 2\n"
	folder := writeFiles(t, map[string]string{"one.py": one, "two.py": two})
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "one.py")
	s := launchProgram(t, []string{binary, "serve", file, filepath.Join(folder, "two.py")}, testkit.Python(t).Path, t.TempDir(), "--dev")
	s.waitReady()
	if err := os.WriteFile(file, []byte(strings.Replace(one, "def a", "def b", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.prints(filepath.Join(folder, "two.py") + " also has a model b: choose another name with name=") {
		t.Error("the taken name is not printed")
	}
	for path, want := range map[string]string{"a": `"output":1`, "b": `"output":2`} {
		if status, body := s.request("POST", "/v2/models/"+path+"/generate", `{"x": 1}`); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d and %s, want %s", path, status, body, want)
		}
	}
	// The old code answers until the new config is there.
	if err := os.WriteFile(file, []byte(strings.NewReplacer("x: int", "x: int, k: int = 5", "return 1", "return x + k").Replace(one)), 0o644); err != nil {
		t.Fatal(err)
	}
	s.until("changed", func() bool {
		status, body, err := s.try("POST", "/v2/models/a/generate", nil, []byte(`{"x": 1, "k": 100}`))
		if err != nil || status != http.StatusOK || !strings.Contains(body, `"output":101`) && !strings.Contains(body, `"output":1}`) {
			t.Fatalf("got %d and %s, error %v, want an answer of the old or the new code", status, body, err)
		}
		return strings.Contains(body, `"output":101`)
	})
}

// TestTritonServesBuiltFunctions compares the replies of a real Triton.
func TestTritonServesBuiltFunctions(t *testing.T) {
	dir := yardstick(t)
	s := startTriton(t, dir, builtFunctions(t, "/usr/bin/python3"))
	s.waitReady()
	askFunctions(t, s)
}

// TestCheckReadsFunctions checks a file with and without a mistake.
func TestCheckReadsFunctions(t *testing.T) {
	folder := writeFiles(t, functionsFile)
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python := "--backend-config=python,python-executable=" + testkit.Python(t).Path
	if output, err := exec.Command(binary, "check", filepath.Join(folder, "app.py"), "--import", python).CombinedOutput(); err != nil {
		t.Errorf("got %v and %s", err, output)
	}
	bad := filepath.Join(folder, "bad.py")
	if err := os.WriteFile(bad, []byte("import nereid\n@nereid.model\ndef f(x) -> int:\n    return 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(binary, "check", bad, python).CombinedOutput(); err == nil || !strings.Contains(string(output), bad+":2: f: parameter x has no annotation") {
		t.Errorf("got %v and %s", err, output)
	}
}
