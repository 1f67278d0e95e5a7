package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// patience is how long a server may take to start or to end.
const patience = 90 * time.Second

// unloadTimeout is how long a model may take to end by itself.
const unloadTimeout = 5 * time.Second

// mark is in the environment of the server and of all its descendants, so that leftovers can be
// found.
const mark = "NEREID_SOAK"

// server is the server under test.
type server struct {
	*measure.Process
	http, grpc, metrics, openai string // addresses
	group                       *group // nil: memory is not limited
	marked                      string // mark=value
	temporary                   string // its TMPDIR
	logPath                     string
	keepLog                     bool
	names                       map[string]bool // in /dev/shm before the start

	mu   sync.Mutex
	most usage // the maximum of each figure
}

// startServer starts the server, in its own control group if possible.
func startServer(ctx context.Context, s settings) (*server, error) {
	ports, err := measure.ReservePorts(4)
	if err != nil {
		return nil, err
	}
	v := &server{
		http: "127.0.0.1:" + ports[0], grpc: "127.0.0.1:" + ports[1], metrics: "127.0.0.1:" + ports[2], openai: "127.0.0.1:" + ports[3],
		marked: fmt.Sprintf("%s=%d.%d", mark, os.Getpid(), time.Now().UnixNano()),
		names:  sharedNames(), logPath: s.log, keepLog: s.log != "",
	}
	if v.temporary, err = os.MkdirTemp("", "nereid-soak-"); err != nil {
		return nil, err
	}
	if v.logPath == "" {
		v.logPath = filepath.Join(os.TempDir(), filepath.Base(v.temporary)+".log")
	}
	log, err := os.Create(v.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if s.memory > 0 {
		if v.group, err = makeGroup(s.memory); err != nil {
			fmt.Printf("no control group can be made: %v; the server gets an account of %s instead\n", err, mib(s.memory/2))
		}
	}

	// The shell joins the group, limits its descriptors and becomes the server.
	script := `exec "$@"`
	if s.descriptors > 0 {
		script = fmt.Sprintf("ulimit -n %d && ", s.descriptors) + script
	}
	if v.group != nil {
		script = fmt.Sprintf("echo $$ > '%s' && ", v.group.processes()) + script
	}
	arguments := []string{
		"-c", script, "sh", s.binary,
		"--model-repository=" + s.models, "--model-control-mode=explicit",
		"--http-address=127.0.0.1", "--http-port=" + ports[0], "--grpc-address=127.0.0.1", "--grpc-port=" + ports[1],
		"--metrics-address=127.0.0.1", "--metrics-port=" + ports[2], "--strict-readiness=false",
		"--openai-address=127.0.0.1", "--openai-port=" + ports[3], "--openai-tokenizer=" + s.tokenizer,
		fmt.Sprintf("--backend-config=python,unload-timeout-seconds=%.0f", unloadTimeout.Seconds()),
	}
	if v.group == nil && s.memory > 0 {
		arguments = append(arguments, fmt.Sprintf("--request-memory-byte-size=%d", s.memory/2)) // as in a group
	}
	if s.python != "" {
		arguments = append(arguments, "--backend-config=python,python-executable="+s.python)
	}
	for _, model := range steadyModels {
		arguments = append(arguments, "--load-model="+model)
	}
	command := exec.Command("/bin/sh", arguments...)
	command.Env = append(os.Environ(), v.marked, "TMPDIR="+v.temporary, "XDG_CACHE_HOME="+filepath.Join(v.temporary, "cache"))
	command.Stdout, command.Stderr = log, log
	if v.Process, err = measure.Start(command); err != nil {
		return nil, err
	}
	if err := v.waitReady(ctx); err != nil {
		v.clear(true)
		return nil, err
	}
	return v, nil
}

// waitReady polls the server until it is ready, or ctx ends.
func (v *server) waitReady(ctx context.Context) error {
	err := v.AwaitReady(patience, func() bool {
		status, _, err := v.get(ctx, "/v2/health/ready")
		return err == nil && status == http.StatusOK || ctx.Err() != nil
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("the server: %w; see %s", err, v.logPath)
	}
	return nil
}

// get sends a GET request over its own connection.
func (v *server) get(ctx context.Context, path string) (int, string, error) {
	return ask(ctx, http.MethodGet, "http://"+v.http+path, "")
}

// post sends a POST request over its own connection.
func (v *server) post(ctx context.Context, path, body string) (int, string, error) {
	return ask(ctx, http.MethodPost, "http://"+v.http+path, body)
}

var once = &http.Client{Transport: rejecting{&http.Transport{DisableKeepAlives: true}}, Timeout: patience}

func ask(ctx context.Context, method, url, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := once.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// stubs returns the current processes of models.
func (v *server) stubs() []int {
	tree, err := measure.Tree(v.PID())
	if err != nil {
		return nil
	}
	var stubs []int
	for _, pid := range tree {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "triton_python_backend_stub") {
			stubs = append(stubs, pid)
		}
	}
	return stubs
}

// stop stops the server with SIGTERM and returns the processes and files that it left.
func (v *server) stop() (left []string, err error) {
	v.Signal(unix.SIGTERM)
	select {
	case <-v.Ended():
	case <-time.After(patience):
		v.Signal(unix.SIGQUIT) // prints its stacks to the log
		v.keepLog = true
		select {
		case <-v.Ended():
		case <-time.After(10 * time.Second):
			v.Kill()
		}
		return nil, fmt.Errorf("the server did not end within %v of SIGTERM; its stacks are in %s", patience, v.logPath)
	}
	if !v.State().Success() {
		err = fmt.Errorf("the server ended with %v; see %s", v.State(), v.logPath)
		v.keepLog = true
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if left = v.remains(); len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
	}
}

// remains lists the leftovers of a stopped server.
func (v *server) remains() (left []string) {
	for _, pid := range v.markedProcesses() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		left = append(left, fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
	}
	for name := range sharedNames() {
		if !v.names[name] && strings.Contains(name, "nereid") {
			left = append(left, "/dev/shm/"+name)
		}
	}
	files, _ := filepath.Glob(filepath.Join(v.temporary, "*"))
	for _, file := range files {
		if filepath.Base(file) != "cache" { // the cache should stay
			left = append(left, "file "+file)
		}
	}
	return left
}

// markedProcesses returns the processes started by the server or its models.
func (v *server) markedProcesses() (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(text), "\x00"+v.marked+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// clear removes the soak's own files, and kills the remaining processes.
func (v *server) clear(keepLog bool) {
	v.Kill()
	for _, pid := range v.markedProcesses() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = os.RemoveAll(v.temporary)
	if v.group != nil {
		v.group.remove()
	}
	if keepLog || v.keepLog {
		fmt.Printf("the server's output is in %s\n", v.logPath)
	} else {
		_ = os.Remove(v.logPath)
	}
}

func sharedNames() map[string]bool {
	names := map[string]bool{}
	entries, _ := os.ReadDir("/dev/shm")
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}
