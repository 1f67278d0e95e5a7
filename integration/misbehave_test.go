package integration

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// misbehavingHead is the beginning of every misbehaving model. A model misbehaves if its input is
// negative, and otherwise returns it.
const misbehavingHead = `
import ctypes, os, signal, subprocess, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils


def answer(requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", r.inputs()[0].as_numpy())]) for r in requests]


def is_bad(requests):
    return requests[0].inputs()[0].as_numpy()[0] < 0


`

// executing returns a model whose execute runs the statement if its input is negative.
func executing(statement string) string {
	return misbehavingHead + "class TritonPythonModel:\n    def execute(self, requests):\n        if is_bad(requests):\n" +
		"            " + strings.ReplaceAll(strings.TrimSpace(statement), "\n", "\n            ") + "\n        return answer(requests)\n"
}

// misbehaviour is one way in which a loaded model can fail a request.
type misbehaviour struct {
	name   string
	model  string
	want   string // matches the client's error; "" if the request succeeds
	status int    // default 500
	logged string // part of the server's log
	either bool   // the request may also succeed
}

const dead = `^Stub process '%s_0' is not healthy\.$`

var misbehaviours = []misbehaviour{
	{name: "killed", model: executing(`os.kill(os.getpid(), signal.SIGKILL)`), want: dead, logged: "process was ended by signal 9 (SIGKILL)"},
	{name: "segfault", model: executing(`ctypes.string_at(0)`), want: dead, logged: "process was ended by signal 11 (SIGSEGV)"},
	{name: "abort", model: executing(`os.abort()`), want: dead, logged: "process was ended by signal 6 (SIGABRT)"},
	{name: "exit_0", model: executing(`os._exit(0)`), want: dead, logged: "process exited with code 0"},
	{name: "exit_3", model: executing(`os._exit(3)`), want: dead, logged: "process exited with code 3"},
	{name: "sys_exit", model: executing(`sys.exit(4)`), want: `message: SystemExit: 4\n\nAt:\n`},
	{name: "raises", model: executing(`raise ValueError("no such thing")`),
		want: `^Failed to process the request\(s\) for model 'raises_0', message: ValueError: no such thing\n\nAt:\n  .*/raises/1/model.py\(\d+\): execute\n$`},
	{name: "raises_triton", model: executing(`raise pb_utils.TritonModelException("quite wrong")`), want: `message: TritonModelException: quite wrong\n\nAt:\n`},
	{name: "raises_base", model: executing(`raise KeyboardInterrupt()`), want: `message: KeyboardInterrupt`},
	{name: "error_response", model: executing(`return [pb_utils.InferenceResponse(error=pb_utils.TritonError("not today", pb_utils.TritonError.UNAVAILABLE)) for r in requests]`),
		want: `^not today$`, status: 503},
	{name: "recursion", model: executing("def f():\n    return f() + 1\nf()"), want: `message: RecursionError: maximum recursion depth exceeded`},
	{name: "out_of_memory", model: executing(`np.zeros(1 << 50, np.uint8)`), want: `message: .*MemoryError: Unable to allocate`},
	{name: "returns_none", model: executing(`return None`), want: `^Failed to process the request\(s\) for model 'returns_none_0', message: `},
	{name: "returns_tuple", model: executing(`return tuple(answer(requests))`),
		want: `message: Expected a list in the execute return, found type '<class 'tuple'>'\.$`},
	{name: "returns_text", model: executing(`return "nonsense"`), want: `message: Expected a list in the execute return, found type '<class 'str'>'\.$`},
	{name: "returns_too_few", model: executing(`return []`),
		want: `Number of InferenceResponse objects do not match the number of InferenceRequest objects\. InferenceRequest\(s\) size is:1, and InferenceResponse\(s\) size is:0\n$`},
	{name: "returns_too_many", model: executing(`return answer(requests) * 2`), want: `InferenceRequest\(s\) size is:1, and InferenceResponse\(s\) size is:2\n$`},
	{name: "returns_numbers", model: executing(`return [7]`), want: `Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'\.$`},
	{name: "returns_requests", model: executing(`return requests`), want: `Expected an 'InferenceResponse' object in the execute function return list, found type '<class '.*InferenceRequest'>'\.$`},
	{name: "returns_none_inside", model: executing(`return [None]`), want: `^Failed to process the request\(s\) for model 'returns_none_inside_0', message: `},
	{name: "returns_arrays", model: executing(`return [pb_utils.InferenceResponse([np.zeros(1)])]`), want: `message: TypeError: `},
	{name: "wrong_output", model: executing(`return [pb_utils.InferenceResponse([pb_utils.Tensor("OTHER", np.zeros(1, np.float32))])]`), want: ``},
	{name: "empty_name", model: executing(`pb_utils.Tensor("", np.zeros(1, np.float32))`), want: `message: TritonModelException: Tensor name cannot be an empty string\.`},
	{name: "odd_type", model: executing(`pb_utils.Tensor("OUTPUT0", np.zeros(1, np.complex64))`), want: `message: TritonModelException: NumPy dtype is not supported\.`},
	{name: "no_execute", model: misbehavingHead + "class TritonPythonModel:\n    pass\n", want: "does not implement `execute` method\\.$"},
	{name: "prints", model: executing("for i in range(3000):\n    print('x' * 200, i)\nsys.stderr.write('y' * 1000000)"), want: ``, logged: "xxxxxxxxxx"},
	{name: "forks", model: executing("if os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)"), want: ``},
	{name: "forks_and_returns", model: executing(`os.fork()`), want: ``},
	{name: "starts_program", model: executing(`subprocess.Popen(["sleep", "600"])`), want: ``},
	{name: "starts_daemon", model: executing(`subprocess.Popen(["sleep", "600"], start_new_session=True)`), want: ``},
	{name: "starts_daemon_and_dies", model: executing("subprocess.Popen([\"sleep\", \"600\"], start_new_session=True)\nos._exit(1)"), want: dead},
	{name: "threads", model: executing("for i in range(50):\n    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"), want: ``},
	{name: "closes_some_files", model: executing(`os.closerange(0, 1000)`), want: ``},
	{name: "closes_files", model: executing(`os.closerange(0, 65536)`), want: dead, either: true, logged: "model=closes_files version=1 instance=closes_files_0"},
	{name: "closes_output", model: executing("os.close(1)\nos.close(2)"), want: ``},
	{name: "changes_directory", model: executing(`os.chdir("/")`), want: ``},
	{name: "ignores_signals", model: executing(`signal.signal(signal.SIGTERM, signal.SIG_IGN)`), want: ``},
	{name: "hangs", model: executing(`time.sleep(600)`), want: dead, logged: "execute"},
	{name: "hangs_in_c", model: executing("libc = ctypes.PyDLL(None)\nlibc.usleep(600 * 1000000)"), want: dead, logged: "execute"},
	{name: "stops_itself", model: executing(`os.kill(os.getpid(), signal.SIGSTOP)`), want: dead, logged: "execute"},
}

// held counts the resources of a server that must not grow.
type held struct{ files, mappings, processes int }

func (h held) String() string {
	return fmt.Sprintf("%d files, %d shared mappings, %d processes", h.files, h.mappings, h.processes)
}

func (s *runningServer) holds() held {
	s.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	h := held{processes: len(s.descendants())}
	for _, f := range files {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.cmd.Process.Pid, f.Name()))
		if !strings.HasPrefix(target, "socket:") {
			h.files++
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	h.mappings = strings.Count(string(maps), "memfd:") + strings.Count(string(maps), "/dev/shm/")
	return h
}

// regionPrefix is the prefix of regions in tests with named regions.
var regionPrefix = fmt.Sprintf("nereid_integration_%d", os.Getpid())

func sharedMemoryNames(t *testing.T) int {
	names, err := filepath.Glob("/dev/shm/" + regionPrefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

const inferBody = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[%d]}]}`

func (s *runningServer) infer(model string, value int) (int, string) {
	s.t.Helper()
	return s.request("POST", "/v2/models/"+model+"/infer", fmt.Sprintf(inferBody, value))
}

const oneFloat = `
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

// TestMisbehavingModelsFailOneRequestEach checks that each misbehaviour fails only one request. The
// client must get a clear error, nothing may be left over, and the next request must succeed.
func TestMisbehavingModelsFailOneRequestEach(t *testing.T) {
	testkit.Story(t)
	files := map[string]string{}
	for _, m := range misbehaviours {
		files[m.name+"/config.pbtxt"] = oneFloat
		files[m.name+"/1/model.py"] = m.model
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--backend-config=python,execute-timeout-seconds=3")
	names := sharedMemoryNames(t)
	for _, m := range misbehaviours {
		t.Run(m.name, func(t *testing.T) {
			outer := s.t
			s.t = t
			defer func() { s.t = outer }()
			serves := !strings.Contains(m.name, "no_execute")
			if serves {
				if status, body := s.infer(m.name, 1); status != http.StatusOK {
					t.Fatalf("before: status %d: %s", status, body)
				}
			}
			before := s.holds()
			status, body := s.infer(m.name, -1)
			want := m.status
			switch {
			case m.want == "":
				want = http.StatusOK
			case want == 0:
				want = http.StatusInternalServerError
			}
			if m.either && status == http.StatusOK {
				want = status
			}
			if status != want {
				t.Errorf("status %d, want %d: %s", status, want, body)
			}
			if m.want != "" && status != http.StatusOK {
				pattern := m.want
				if pattern == dead {
					pattern = fmt.Sprintf(dead, m.name)
				}
				if message := errorOf(t, body); !regexp.MustCompile(pattern).MatchString(message) {
					t.Errorf("got the error %q, want %q", message, pattern)
				}
			}
			if m.logged != "" {
				s.until(fmt.Sprintf("logging %q", m.logged), func() bool { return strings.Contains(s.log.String(), m.logged) })
			}
			if !serves {
				return
			}
			testkit.Eventually(t, startLimit, func() bool {
				status, _, err := s.try("GET", "/v2/models/"+m.name+"/ready", nil, nil)
				return err == nil && status == http.StatusOK
			})
			if status, body := s.infer(m.name, 2); status != http.StatusOK || !strings.Contains(body, `"data":[2`) {
				t.Errorf("after: status %d: %s", status, body)
			}
			// A loaded model may keep the processes that it has started.
			allowed := before
			switch m.name {
			case "forks", "forks_and_returns", "starts_program", "starts_daemon":
				allowed.processes++
			}
			var after held
			if !testkit.Within(startLimit, func() bool {
				after = s.holds()
				return after.files <= allowed.files && after.mappings <= allowed.mappings && after.processes <= allowed.processes
			}) {
				t.Errorf("the server holds %v, before it held %v", after, allowed)
			}
			if now := sharedMemoryNames(t); now > names {
				t.Errorf("%d names in /dev/shm, before there were %d", now, names)
			}
		})
	}
	if status, body := s.request("GET", "/v2/health/ready", ""); status != http.StatusOK {
		t.Errorf("the server is not ready after all: %d: %s", status, body)
	}
}

// TestModelsThatDoNotStart checks that a model that fails to start fails only its own load, and
// that the index gives the reason.
func TestModelsThatDoNotStart(t *testing.T) {
	class := "class TritonPythonModel:\n    def initialize(self, args):\n        "
	models := []struct{ name, model, want string }{
		{"dies_in_import", misbehavingHead + "os.kill(os.getpid(), signal.SIGKILL)\n", `^Internal: Stub process '' is not healthy\.$`},
		{"raises_in_import", "import nothing_of_that_name\n", `^Internal: ModuleNotFoundError: No module named 'nothing_of_that_name'\n\nAt:\n`},
		{"no_syntax", "class TritonPythonModel\n", `^Internal: SyntaxError: `},
		{"no_class", "x = 1\n", `^Internal: .*has no attribute 'TritonPythonModel'`},
		{"raises_in_constructor", "class TritonPythonModel:\n    def __init__(self):\n        raise ValueError('built badly')\n", `^Internal: ValueError: built badly\n\nAt:\n`},
		{"dies_in_initialize", misbehavingHead + class + "os._exit(0)\n", `^Internal: Stub process 'dies_in_initialize_0' is not healthy\.$`},
		{"segfaults_in_initialize", misbehavingHead + class + "ctypes.string_at(0)\n", `^Internal: Stub process 'segfaults_in_initialize_0' is not healthy\.$`},
		{"raises_in_initialize", misbehavingHead + class + "raise RuntimeError('not ready')\n",
			`^Internal: RuntimeError: not ready\n\nAt:\n  .*/raises_in_initialize/1/model.py\(\d+\): initialize\n$`},
		{"exits_in_initialize", misbehavingHead + class + "sys.exit(1)\n", `^Internal: SystemExit: 1`},
		{"hangs_in_initialize", misbehavingHead + class + "time.sleep(600)\n", `^Internal: Stub process 'hangs_in_initialize_0' is not healthy\.$`},
		{"odd_file_name", "", `^Internal: Model name must end with '\.py'\. Model name is "model\.txt"\.$`},
		{"no_such_backend", "", `^Invalid argument: unable to find backend library for backend 'nonesuch', try specifying runtime on the model configuration\.$`},
	}
	files := map[string]string{
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"bad_config/config.pbtxt": "backend: \"python\"\ninput [ { nam: \"x\" } ]\n", "bad_config/1/model.py": executing("pass"),
	}
	for _, m := range models {
		config := oneFloat
		switch m.name {
		case "odd_file_name":
			config += "default_model_filename: \"model.txt\"\n"
		case "no_such_backend":
			config = strings.Replace(config, "python", "nonesuch", 1)
		}
		files[m.name+"/config.pbtxt"] = config
		files[m.name+"/1/model.py"] = m.model
	}
	root := writeFiles(t, files)
	outside := writeFiles(t, map[string]string{"model.py": executing("pass")})
	links := map[string]string{ // link to target; a link within the repository is allowed
		"leaves/1/model.py": filepath.Join(outside, "model.py"), "stays/1/model.py": "../../good/1/model.py",
	}
	for link, target := range links {
		dir := filepath.Dir(filepath.Join(root, link))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "config.pbtxt"), []byte(oneFloat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A model that hangs uses a separate server with a short timeout.
	const hangs = "hangs_in_initialize"
	if err := os.RemoveAll(filepath.Join(root, hangs)); err != nil {
		t.Fatal(err)
	}
	s := launch(t, testkit.Python(t).Path, root, "--exit-on-error=false")
	hurried := launch(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		hangs + "/config.pbtxt": oneFloat, hangs + "/1/model.py": files[hangs+"/1/model.py"],
	}), "--exit-on-error=false", "--backend-config=python,initialize-timeout-seconds=3")
	for _, s := range []*runningServer{s, hurried} {
		s.until("listening", func() bool {
			status, _, err := s.try("GET", "/v2/health/live", nil, nil)
			return err == nil && status == http.StatusOK
		})
	}
	if status, body := s.infer("good", 3); status != http.StatusOK {
		t.Errorf("the good model: status %d: %s", status, body)
	}
	if status, _ := s.request("GET", "/v2/health/ready", ""); status != http.StatusBadRequest {
		t.Errorf("a server with failed models is ready: status %d, want 400", status)
	}
	index := s.index()
	maps.Copy(index, hurried.index())
	if e := index["leaves"]; e.Reason != "Invalid argument: '1/model.py' of model 'leaves' is a link that leaves the repository" {
		t.Errorf("a link that leaves the repository: %+v", e)
	}
	if status, body := s.infer("stays", 3); status != http.StatusOK {
		t.Errorf("a link that stays: status %d: %s", status, body)
	}
	for _, m := range models {
		entry, known := index[m.name]
		if !known || entry.State != "UNAVAILABLE" || !regexp.MustCompile(m.want).MatchString(entry.Reason) {
			t.Errorf("%s: state %q, reason %q, want UNAVAILABLE, %q", m.name, entry.State, entry.Reason, m.want)
		}
	}
	if !s.prints("bad_config/config.pbtxt:2:") || !s.prints("nam") {
		t.Error("the log does not say where bad_config's config is wrong")
	}
	if n := len(s.stubs()); n != 2 {
		t.Errorf("%d stubs run, want those of the two good models alone", n)
	}
}
