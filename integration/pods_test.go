package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// linkServer creates a link with the given name to the server's binary and returns its path.
func linkServer(t *testing.T, name string) string {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestKServesCommandLineServes starts the image's entry point with the arguments of KServe's
// runtime for Triton and a repeated argument of an InferenceService. The models arrive after the
// server has started, through a link that another container creates.
func TestKServesCommandLineServes(t *testing.T) {
	t.Setenv("MODEL_INIT_MODE", "async")
	root, port := filepath.Join(t.TempDir(), "models"), testkit.Port(t)
	s := launchProgram(t, []string{linkServer(t, "nereid-entrypoint"), "tritonserver"}, testkit.Python(t).Path, root,
		"--model-store="+root, "--allow-grpc=true", "--allow-http=true", fmt.Sprintf("--http-port=%d", port))
	s.http = port
	s.until("the wait for the repository", func() bool { return s.prints("waiting for the model repository") })
	if err := os.Symlink(writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel}), root); err != nil {
		t.Fatal(err)
	}
	s.waitReady()
	if status, body := s.request("POST", "/v2/models/m/infer", oneValue); status != http.StatusOK {
		t.Errorf("got %d, %s", status, body)
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestKServesAgentLoadsAndUnloads starts a server with an empty repository and does the same as
// KServe's agent: it adds a model and loads it, then removes its files and unloads it. Each reply
// must have status 200, because the agent accepts no other.
func TestKServesAgentLoadsAndUnloads(t *testing.T) {
	root := t.TempDir()
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit")
	agent := func(name, action string) {
		t.Helper()
		if status, body := s.request("POST", "/v2/repository/models/"+name+"/"+action, "{}"); status != http.StatusOK {
			t.Errorf("%s %s: got %d, %s; want 200", action, name, status, body)
		}
	}
	for round := range 2 {
		for _, name := range []string{"kept", "m"} {
			testkit.WriteFiles(t, root, map[string]string{name + "/config.pbtxt": oneFloat, name + "/1/model.py": identityModel})
			agent(name, "load")
		}
		if status, body := s.request("POST", "/v2/models/m/infer", oneValue); status != http.StatusOK {
			t.Errorf("round %d: got %d, %s", round, status, body)
		}
		stubs := s.stubsOf("m")
		if len(stubs) != 1 {
			t.Errorf("round %d: the model has %d processes, want 1", round, len(stubs))
		}
		if err := os.RemoveAll(filepath.Join(root, "m")); err != nil {
			t.Fatal(err)
		}
		agent("m", "unload")
		s.until("m is unloaded", func() bool {
			status, _ := s.request("GET", "/v2/models/m/ready", "")
			return status != http.StatusOK
		})
		s.gone(stubs)
		s.until("ready without the model", func() bool { // with strict readiness, it is not ready while a model unloads
			status, _ := s.request("GET", "/v2/health/ready", "")
			return status == http.StatusOK
		})
		if status, _ := s.request("POST", "/v2/models/kept/infer", oneValue); status != http.StatusOK {
			t.Errorf("round %d: the other model: got %d, want 200", round, status)
		}
	}
}

// TestServerThatWaitsForItsRepositoryEndsBySIGTERM checks that SIGTERM stops a server that waits
// for its repository, as in a pod that is deleted before its models have arrived.
func TestServerThatWaitsForItsRepositoryEndsBySIGTERM(t *testing.T) {
	t.Setenv("MODEL_INIT_MODE", "async")
	s := launch(t, "", filepath.Join(t.TempDir(), "never"))
	s.until("the wait for the repository", func() bool { return s.prints("waiting for the model repository") })
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

const oneValue = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`

// TestDelayServesAndIsNotReady checks the delay between SIGTERM and the shutdown. The server must
// not be ready. Requests on old and new connections must succeed, with a reply that tells the
// client to reconnect.
func TestDelayServesAndIsNotReady(t *testing.T) {
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel})
	s := start(t, testkit.Python(t).Path, repository, "--exit-delay-secs=3600")
	kept := &http.Client{Transport: &http.Transport{}, Timeout: startLimit}
	infer := func(client *http.Client) (status int, last bool) {
		t.Helper()
		reply, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", s.http), "application/json", strings.NewReader(oneValue))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		if _, err := io.Copy(io.Discard, reply.Body); err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, reply.Close
	}
	if status, last := infer(kept); status != http.StatusOK || last {
		t.Errorf("before: got status %d, the connection ends: %v; want 200 and that it is kept", status, last)
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	s.until("not ready", func() bool {
		status, _ := s.request("GET", "/v2/health/ready", "")
		return status == http.StatusBadRequest
	})
	if status, _ := s.request("GET", "/v2/health/live", ""); status != http.StatusOK {
		t.Errorf("live: got %d, want 200", status)
	}
	for name, client := range map[string]*http.Client{"a kept connection": kept, "a new one": {Transport: &http.Transport{}, Timeout: startLimit}} {
		if status, last := infer(client); status != http.StatusOK || !last {
			t.Errorf("%s: got status %d, the connection ends: %v; want 200 and its end", name, status, last)
		}
	}
	children := s.descendants()
	testkit.Eventually(t, startLimit, func() bool { // simultaneous signals count as one
		_ = s.cmd.Process.Signal(unix.SIGTERM)
		return strings.Contains(s.log.String(), "stopped at once because of a second signal")
	})
	if status := s.wait(startLimit); status != 1 {
		t.Errorf("exit status %d after a second signal, want 1", status)
	}
	s.gone(children)
}

// TestRollingUpdateLosesNoRequest stops three servers one after another, each after a replacement
// has started. No request may be lost. Clients connect for each request or keep their connections,
// and leave a server only when its probe fails.
func TestRollingUpdateLosesNoRequest(t *testing.T) {
	if !testkit.Long() {
		t.Skip("it takes three times the delay; NEREID_TEST_LONG=1 runs it")
	}
	const delay = 5 * time.Second
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel})
	python := testkit.Python(t).Path
	begin := func() *runningServer {
		return start(t, python, repository, fmt.Sprintf("--exit-delay-secs=%d", delay/time.Second))
	}

	var mu sync.Mutex // guards endpoints
	endpoints := []*runningServer{begin(), begin(), begin()}
	update := func(change func([]*runningServer) []*runningServer) {
		mu.Lock()
		defer mu.Unlock()
		endpoints = change(endpoints)
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answers, lost atomic.Int64
	for i := range 4 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}, Timeout: startLimit}
		clients.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				mu.Lock()
				port := endpoints[n%len(endpoints)].http
				mu.Unlock()
				reply, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/v2/models/m/infer", port), "application/json", strings.NewReader(oneValue))
				if err == nil {
					_, err = io.Copy(io.Discard, reply.Body)
					_ = reply.Body.Close()
				}
				if err != nil || reply.StatusCode != http.StatusOK {
					lost.Add(1)
					t.Logf("a request to port %d: %v", port, err)
				}
				answers.Add(1)
			}
		})
	}
	end := func() {
		stop()
		clients.Wait()
	}
	defer end()
	for range 3 {
		added := begin()
		old := endpoints[0]
		update(func(list []*runningServer) []*runningServer { return append(list, added) })
		seen := answers.Load()
		_ = old.cmd.Process.Signal(unix.SIGTERM)
		signalled := time.Now()
		old.until("not ready", func() bool {
			status, _ := old.request("GET", "/v2/health/ready", "")
			return status == http.StatusBadRequest
		})
		testkit.Eventually(t, startLimit, func() bool { return answers.Load() > seen+100 }) // some of them come from the old server
		update(func(list []*runningServer) []*runningServer { return list[1:] })
		if took := time.Since(signalled); took > delay/2 {
			t.Skipf("the probe was seen %v after the signal: this machine is too slow to tell", took)
		}
		if status := old.wait(startLimit); status != 0 {
			t.Errorf("exit status %d, want 0", status)
		}
	}
	end()
	if lost.Load() > 0 {
		t.Errorf("%d of %d requests were lost", lost.Load(), answers.Load())
	}
}
