package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience limits each wait on a busy machine.
const patience = time.Minute

var buildServer = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../../bin/nereid-under-faults")
	if err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-o", binary, "../../cmd/nereid").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return binary, nil
})

// fault makes a system call of the server fail with an errno: the first Skip calls succeed, then
// Times calls fail, or all if Times is -1.
type fault struct {
	Call  string `json:"call"`
	Errno string `json:"errno"`
	Skip  int    `json:"skip"`
	Times int    `json:"times"`
}

// server is the real server under the control of testdata/inject.py.
type server struct {
	t      *testing.T
	orders io.WriteCloser
	lines  *bufio.Reader
	log    string
	pid    int
	http   string
	rpc    string
	client *http.Client
	ended  chan struct{} // closed when inject.py has ended
}

// said is a line of output of inject.py.
type said struct {
	PID     int
	Refused string
	Armed   int
	Hits    int
	Seen    map[string]int
	Exit    *int
}

// launch starts a server in which the given system calls can fail. The given faults apply from the
// start.
func launch(t *testing.T, calls []string, faults ...fault) *server {
	t.Helper()
	return launchWith(t, nil, calls, faults...)
}

// launchWith is like launch but takes more server flags.
func launchWith(t *testing.T, flags, calls []string, faults ...fault) *server {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python := testkit.Python(t)
	s := &server{t: t, log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	web, rpc, metrics := strconv.Itoa(testkit.Port(t)), strconv.Itoa(testkit.Port(t)), strconv.Itoa(testkit.Port(t))
	s.http, s.rpc = "http://127.0.0.1:"+web, "127.0.0.1:"+rpc
	arguments := append([]string{"testdata/inject.py"}, calls...)
	arguments = append(arguments, "--", binary, "--model-repository=testdata/models", "--model-control-mode=explicit", "--load-model=m",
		"--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1", "--http-port="+web, "--grpc-port="+rpc, "--metrics-port="+metrics,
		"--exit-timeout-secs=10", "--backend-config=python,python-executable="+python.Path)
	arguments = append(arguments, flags...)
	first, err := json.Marshal(faults)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(python.Path, arguments...)
	command.Env = append(os.Environ(), "FAULTS_LOG="+s.log, "FAULTS_FIRST="+string(first))
	command.Stderr = os.Stderr
	if s.orders, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewReader(out)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	begun := s.hear()
	s.client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(func() {
		_ = s.orders.Close()
		_ = command.Wait()
		close(s.ended)
		if text := s.text(); strings.Contains(text, "fatal error:") || strings.Contains(text, "goroutine 1 [") {
			t.Errorf("the server crashed:\n%s", last(text))
		}
	})
	if begun.Refused != "" {
		t.Skipf("system calls cannot be made to fail here: %s", begun.Refused)
	}
	s.pid = begun.PID
	return s
}

func last(text string) string { return text[max(0, len(text)-6000):] }

func (s *server) text() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return ""
	}
	return string(text)
}

func (s *server) hear() (line said) {
	s.t.Helper()
	text, err := s.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &line)
	}
	if err != nil {
		s.t.Fatalf("inject.py said %q: %v; log:\n%s", text, err, last(s.text()))
	}
	if line.Exit != nil {
		s.t.Fatalf("the server has ended with %d; log:\n%s", *line.Exit, last(s.text()))
	}
	return line
}

func (s *server) order(what any) said {
	s.t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.orders.Write(append(text, '\n')); err != nil {
		s.t.Fatal(err)
	}
	return s.hear()
}

// arm makes calls fail from now on. disarm ends that and returns the number of failures.
func (s *server) arm(faults ...fault) { s.order(map[string]any{"arm": faults}) }
func (s *server) disarm() (hits int)  { return s.order(map[string]any{"disarm": true}).Hits }

// call sends a request. status is 0 if there is no reply.
func (s *server) call(method, path, body string) (status int, reply string) {
	request, err := http.NewRequest(method, s.http+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// infer sends n bytes to the model and checks that as many come back.
func (s *server) infer(n int) (status int, reply string) {
	head := fmt.Sprintf(`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}`, n, n)
	request, err := http.NewRequest(http.MethodPost, s.http+"/v2/models/m/infer", io.MultiReader(strings.NewReader(head), bytes.NewReader(make([]byte, n))))
	if err != nil {
		s.t.Fatal(err)
	}
	request.ContentLength = int64(len(head) + n)
	request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	if answer.StatusCode == http.StatusOK && len(text) < n {
		return 0, fmt.Sprintf("only %d of %d bytes came back", len(text), n)
	}
	return answer.StatusCode, cut(string(text))
}

func cut(text string) string { return text[:min(len(text), 300)] }

// works waits until the server serves requests again.
func (s *server) works(what string) {
	s.t.Helper()
	var status int
	var reply string
	if !testkit.Within(patience, func() bool {
		status, reply = s.infer(8)
		return status == http.StatusOK
	}) {
		s.t.Fatalf("%s: got %d %s for good, want that it recovers; log:\n%s", what, status, reply, last(s.text()))
	}
}

// stub returns the pid of the model's stub, or 0.
func (s *server) stub() int {
	for _, pid := range s.children() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), "triton_python_backend_stub") {
			return pid
		}
	}
	return 0
}

func (s *server) children() (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid))
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// left counts the resources that the server holds.
type left struct{ files, mappings, children int }

func (s *server) holds() (l left) {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	l.files, l.children = len(files), len(s.children())
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))
	l.mappings = strings.Count(string(maps), "memfd:nereid")
	return l
}

// settled waits until the server holds no more resources than before.
func (s *server) settled(before left) {
	s.t.Helper()
	var now left
	if !testkit.Within(patience, func() bool {
		now = s.holds()
		return now.files <= before.files && now.mappings <= before.mappings && now.children <= before.children
	}) {
		s.t.Fatalf("got %+v in the end, want no more than %+v; log:\n%s", now, before, last(s.text()))
	}
	if strings.Contains(s.text(), "internal error; the server continues") {
		s.t.Fatalf("the server has panicked:\n%s", last(s.text()))
	}
}

// waitFor waits for a condition.
func (s *server) waitFor(what string, ok func() bool) {
	s.t.Helper()
	if !testkit.Within(patience, ok) {
		s.t.Fatalf("%s: did not come; log:\n%s", what, last(s.text()))
	}
}

// over reports whether the server has ended.
func (s *server) over() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// kill kills the model's stub.
func (s *server) kill() {
	s.t.Helper()
	var pid int
	if !testkit.Within(patience, func() bool { pid = s.stub(); return pid != 0 }) {
		s.t.Fatalf("there is no process of the model; log:\n%s", last(s.text()))
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	testkit.Eventually(s.t, patience, func() bool { return s.stub() != pid })
}
