package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/status"
	"golang.org/x/sys/unix"
)

// status returns the status of the server from the metrics endpoint.
func (s *runningServer) status(query string) *status.Snapshot {
	s.t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/status%s", s.metrics, query))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got status.Snapshot
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("/status%s: %d, %v", query, resp.StatusCode, err)
	}
	return &got
}

// TestStatusShowsFailures serves models that fail to load, lose their stub or fail a request.
// The status must have the traceback, the last output of the stub, the error, and the counts of
// requests.
func TestStatusShowsFailures(t *testing.T) {
	s := launch(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"broken/config.pbtxt": oneFloat, "broken/1/model.py": "def helper():\n    raise ValueError('no weights')\n\n\nclass TritonPythonModel:\n    def initialize(self, args):\n        helper()\n\n    def execute(self, requests):\n        pass\n",
		"dies/config.pbtxt": oneFloat, "dies/1/model.py": executing("os.write(2, b'these are my last words\\n')\nos._exit(3)"),
		"raises/config.pbtxt": oneFloat, "raises/1/model.py": executing("raise KeyError('no such key')"),
		"typo/config.pbtxt": "backend: \"python\"\ninput [ { name: \"A\" data_type: TYPE_BYTES } ]\n", "typo/1/model.py": executing("pass"),
		"unnumbered/config.pbtxt": oneFloat,
	}), "--exit-on-error=false", "--strict-readiness=false")
	s.waitReady()
	for _, model := range []string{"dies", "raises"} {
		for _, value := range []int{1, 1, -1, 1} {
			s.infer(model, value)
		}
	}
	find := func(model string) *status.Version {
		for _, v := range s.status("").Versions {
			if v.Model == model {
				return &v
			}
		}
		t.Fatalf("the status has no model %s", model)
		return nil
	}
	broken := find("broken")
	for _, want := range []string{"ValueError: no weights", "broken/1/model.py(2): helper", "broken/1/model.py(7): initialize"} {
		if broken.State != "UNAVAILABLE" || !strings.Contains(broken.Reason, want) {
			t.Errorf("broken: got %s with the reason %q, want %q in it", broken.State, broken.Reason, want)
		}
	}
	for model, want := range map[string]string{"typo": "typo/config.pbtxt:2:", "unnumbered": "at least one version must be available"} {
		if v := find(model); v.Version != 0 || v.State != "UNAVAILABLE" || !strings.Contains(v.Reason, want) {
			t.Errorf("%s: got version %d, %s with the reason %q, want %q in it", model, v.Version, v.State, v.Reason, want)
		}
	}
	s.until("the process that ended is replaced", func() bool {
		v := find("dies")
		if len(v.Instances) != 1 {
			return false
		}
		in := v.Instances[0]
		return in.State == "ready" && in.Restarts == 1 && in.PID > 0 && in.Resident > 1<<20
	})
	loss := find("dies").Instances[0].LastLoss
	if loss == nil || loss.Cause != "exit" || !strings.Contains(loss.Text, "exited with code 3") || !strings.Contains(loss.Text, "these are my last words") {
		t.Errorf("dies: got the loss %+v, want the code and the last words", loss)
	}
	raises := find("raises")
	if c := raises.Counters; c.Succeeded != 3 || c.Failures() != 1 || raises.Recent[0].Succeeded != 3 || raises.Recent[0].Failed != 1 || raises.Recent[0].Request == nil || raises.Recent[0].Request.P99 <= 0 {
		t.Errorf("raises: got the counters %+v and %+v, want 3 requests, a failure and percentiles", c, raises.Recent)
	}
	now := s.status("?lines=1000")
	wants := []string{"no such key", "ValueError: no weights", "model=raises"}
	for _, want := range wants {
		found := false
		for _, line := range now.Errors {
			found = found || line.Level == "error" && strings.Contains(line.Text, want)
		}
		if !found {
			t.Errorf("no error has %q: %+v", want, now.Errors)
		}
	}
	if len(now.Log) == 0 || now.Server.Name != "triton" || now.Server.Control != "none" || now.Server.PID != s.cmd.Process.Pid || now.Server.Build == "" {
		t.Errorf("got the server %+v and %d lines", now.Server, len(now.Log))
	}
	if later := s.status(fmt.Sprintf("?after=%d", now.Last)); len(later.Log) != 0 {
		t.Errorf("got the lines %+v after the last one", later.Log)
	}
}

// TestStatusCanBeSwitchedOff checks that --allow-status=false disables the endpoint.
func TestStatusCanBeSwitchedOff(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")}), "--allow-status=false")
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/status", s.metrics))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ContentLength != 0 {
		t.Errorf("got %d bytes, want none", resp.ContentLength)
	}
}

// TestStatusIsFreshWhileAllElseHangs checks that the status stays up to date during a load that
// never ends, with a stopped stub, and with a full queue.
func TestStatusIsFreshWhileAllElseHangs(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"loads/config.pbtxt": oneFloat, "loads/1/model.py": "import time\n\n\nclass TritonPythonModel:\n    def initialize(self, args):\n        time.sleep(600)\n\n    def execute(self, requests):\n        pass\n",
		"stops/config.pbtxt": oneFloat, "stops/1/model.py": executing("os.kill(os.getpid(), signal.SIGSTOP)"),
	}), "--model-control-mode=explicit", "--load-model=stops", "--model-max-queued-requests=3")
	var hanging sync.WaitGroup
	hang := func(path, body string) {
		hanging.Go(func() { _, _, _ = s.try("POST", path, nil, []byte(body)) }) // the server stops before it has replied
	}
	hang("/v2/repository/models/loads/load", "")
	const infer = "/v2/models/stops/infer"
	hang(infer, fmt.Sprintf(inferBody, -1))
	find := func(model string) (v status.Version) {
		for _, v := range s.status("?lines=0").Versions {
			if v.Model == model {
				return v
			}
		}
		return v
	}
	s.until("the stub executes", func() bool { return find("stops").InFlight == 1 })
	for range 8 {
		hang(infer, fmt.Sprintf(inferBody, 1))
	}
	s.until("the queue is full", func() bool { return find("stops").Queue >= 3 })
	for range 3 {
		asked := time.Now()
		var now *status.Snapshot
		s.until("a status that is newer than its request", func() bool {
			now = s.status("?lines=0")
			return now.At.After(asked)
		})
	}
	stops, loads := find("stops"), find("loads")
	if len(stops.Instances) != 1 || stops.Instances[0].State != "busy" || stops.Instances[0].PID == 0 || stops.InFlight < 4 || stops.Queue < 3 {
		t.Errorf("got %+v, want a busy instance and a full queue", stops)
	}
	if loads.State != "LOADING" || len(loads.Instances) != 1 || loads.Instances[0].State != "starting" || loads.Instances[0].PID == 0 || loads.Instances[0].Resident == 0 {
		t.Errorf("got %+v, want an instance that starts, with its process", loads)
	}
	if err := unix.Kill(stops.Instances[0].PID, unix.SIGCONT); err != nil {
		t.Error(err)
	}
	s.stop()
	hanging.Wait()
}
