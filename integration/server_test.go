package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// startLimit is the time that a server may need to start, stop or reply on a machine that is busy
// with other tests.
const startLimit = 3 * time.Minute

// slack is the additional time that a busy machine may need for an action that is immediate on an
// idle one.
const slack = 20 * time.Second

// runningServer is a server process with separate ports.
type runningServer struct {
	rival               bool // a real Triton
	t                   *testing.T
	cmd                 *exec.Cmd
	log                 *testkit.Buffer
	http, grpc, metrics int
	ended               chan error // receives the result of Wait once
	down                bool
}

// launch starts a server and does not wait for it.
func launch(t *testing.T, python, repository string, flags ...string) *runningServer {
	t.Helper()
	return launchBehind(t, nil, python, repository, flags...)
}

// launchBehind is like launch, but starts the server through a wrapper program that executes the
// command line in its arguments.
func launchBehind(t *testing.T, program []string, python, repository string, flags ...string) *runningServer {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	return launchProgram(t, append(slices.Clone(program), binary), python, repository, flags...)
}

// launchProgram is like launch, but starts any program that accepts the flags of a server.
func launchProgram(t *testing.T, program []string, python, repository string, flags ...string) *runningServer {
	t.Helper()
	ports := testkit.Ports(t, 3)
	s := &runningServer{t: t, log: &testkit.Buffer{}, http: ports[0], grpc: ports[1], metrics: ports[2], ended: make(chan error, 1)}
	arguments := []string{
		"--model-repository=" + repository, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
		"--http-port=" + strconv.Itoa(s.http), "--grpc-port=" + strconv.Itoa(s.grpc), "--metrics-port=" + strconv.Itoa(s.metrics), "--http-ui=false",
	}
	if python != "" {
		arguments = append(arguments, "--backend-config=python,python-executable="+python)
	}
	line := append(slices.Clone(program), append(arguments, flags...)...)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0 exitcode=66 atexit_sleep_ms=0")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() {
		if !s.down {
			s.stop()
		}
		if t.Failed() {
			t.Logf("the server printed:\n%s", s.log)
		}
		if strings.Contains(s.log.String(), "WARNING: DATA RACE") {
			t.Errorf("the server has a data race:\n%s", s.log)
		}
	})
	return s
}

// start starts a server and waits until it is ready.
func start(t *testing.T, python, repository string, flags ...string) *runningServer {
	t.Helper()
	s := launch(t, python, repository, flags...)
	s.waitReady()
	return s
}

func (s *runningServer) waitReady() {
	s.t.Helper()
	s.until("ready", func() bool {
		status, _, err := s.try("GET", "/v2/health/ready", nil, nil)
		return err == nil && status == http.StatusOK
	})
}

// prints waits until the server has printed a text, and reports whether it has. Output from before
// a reply may arrive after the reply.
func (s *runningServer) prints(text string) bool {
	return testkit.Within(startLimit, func() bool { return strings.Contains(s.log.String(), text) })
}

// printed waits until the server has printed a text at least the given number of times, and returns
// the actual number.
func (s *runningServer) printed(text string, times int) (n int) {
	testkit.Within(startLimit, func() bool {
		n = strings.Count(s.log.String(), text)
		return n >= times
	})
	return n
}

// until waits for a condition while the server is running.
func (s *runningServer) until(what string, ok func() bool) {
	s.t.Helper()
	testkit.Eventually(s.t, startLimit, func() bool {
		select {
		case err := <-s.ended:
			s.ended <- err
			s.t.Fatalf("the server ended before it was %s: %v\n%s", what, err, s.log)
		default:
		}
		return ok()
	})
}

// wait waits until the server has exited and returns its exit status.
func (s *runningServer) wait(limit time.Duration) int {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.down = true
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		_ = s.cmd.Process.Signal(unix.SIGQUIT) // prints the stacks
		<-s.ended                              //nolint:errcheck // it was killed
		s.down = true
		s.t.Fatalf("the server has not ended within %s:\n%s", limit, s.log)
		return -1
	}
}

// stop stops the server with SIGTERM and checks that it leaves nothing over.
func (s *runningServer) stop() {
	s.t.Helper()
	children := s.descendants()
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		s.t.Errorf("exit status %d, want 0", status)
	}
	s.gone(children)
}

// gone fails the test if one of the processes stays alive.
func (s *runningServer) gone(pids []int) {
	s.t.Helper()
	var left []string
	if !testkit.Within(slack, func() bool {
		left = left[:0]
		for _, pid := range pids {
			if unix.Kill(pid, 0) == nil {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if !bytes.Contains(stat, []byte(") Z ")) { // a zombie is dead, but init has not reaped it yet
					left = append(left, string(stat))
				}
			}
		}
		return len(left) == 0
	}) {
		s.t.Errorf("processes live on: %s", strings.Join(left, "; "))
	}
}

// descendants lists the processes that descend from the server.
func (s *runningServer) descendants() []int {
	parents := map[int]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range entries {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	var below []int
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if parents[p] == s.cmd.Process.Pid {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}

var stubLine = regexp.MustCompile(`triton_python_backend_stub`)

// stubs lists the stubs of the server.
func (s *runningServer) stubs() []int {
	var stubs []int
	for _, pid := range s.descendants() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if stubLine.Match(line) {
			stubs = append(stubs, pid)
		}
	}
	return stubs
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: startLimit}

// try sends a request.
func (s *runningServer) try(method, path string, header map[string]string, body []byte) (int, string, error) {
	return s.tryBy(client, method, path, header, body)
}

// tryBy sends a request with the given client.
func (s *runningServer) tryBy(client *http.Client, method, path string, header map[string]string, body []byte) (int, string, error) {
	r, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", s.http, path), bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// request sends a request that must get a reply.
func (s *runningServer) request(method, path, body string) (int, string) {
	s.t.Helper()
	status, text, err := s.try(method, path, nil, []byte(body))
	switch {
	case err != nil && s.rival: // Triton occasionally crashes with some configs
		s.t.Skipf("Triton does not answer any more, so there is nothing to compare with: %s %s: %v", method, path, err)
	case err != nil:
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, text
}

// errorOf returns the message of an error reply.
func errorOf(t *testing.T, body string) string {
	t.Helper()
	var e struct {
		Error *string `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Fatalf("not an error reply: %q", body)
	}
	return *e.Error
}

// writeFiles creates files in a temporary directory and returns the directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	return testkit.WriteFiles(t, t.TempDir(), files)
}

// clientPython returns the Python that has tritonclient.
func clientPython(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		testkit.Missing(t, "no .venv with tritonclient: make it with \"make integration\"")
	}
	return path
}

// runScript runs the script in its arguments, and prevents a hang of the interpreter at its exit.
const runScript = "testdata/run.py"

// runClient runs a script of testdata with tritonclient, which must succeed.
func (s *runningServer) runClient(script string, arguments ...string) {
	s.t.Helper()
	arguments = append([]string{runScript, filepath.Join("testdata", script), fmt.Sprintf("127.0.0.1:%d", s.http), fmt.Sprintf("127.0.0.1:%d", s.grpc)}, arguments...)
	output, err := exec.Command(clientPython(s.t), arguments...).CombinedOutput()
	if err != nil {
		s.t.Errorf("%s: %v\n%s", script, err, output)
	}
}

// indexEntry is a version in the repository index.
type indexEntry struct{ Name, Version, State, Reason string }

// index returns the repository index, keyed by model.
func (s *runningServer) index() map[string]indexEntry {
	s.t.Helper()
	status, body := s.request("POST", "/v2/repository/index", "")
	if status != http.StatusOK {
		s.t.Fatalf("index: status %d: %s", status, body)
	}
	var list []indexEntry
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		s.t.Fatalf("index: %v: %s", err, body)
	}
	byName := map[string]indexEntry{}
	for _, e := range list {
		byName[e.Name] = e
	}
	return byName
}
