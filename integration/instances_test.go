package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// placedModel reports its instance and placement. A negative input makes it wait for a file.
const placedModel = `
import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.file = os.path.join(args["model_repository"], "..", "..", "go")
        self.told = {"instance": args["model_instance_name"], "pid": os.getpid(), "kind": args["model_instance_kind"],
                     "device": args["model_instance_device_id"], "visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "cores": sorted(os.sched_getaffinity(0)),
                     "count": sum(g["count"] for g in json.loads(args["model_config"])["instance_group"])}

    def execute(self, requests):
        responses = []
        for request in requests:
            n = int(request.inputs()[0].as_numpy()[0])
            if n < 0:
                open(os.path.join(os.path.dirname(self.file), "busy-%d" % os.getpid()), "w").close()
            while n < 0 and not os.path.exists(self.file):
                time.sleep(0.005)
            if n > 0:
                time.sleep(n / 1000)
            answer = pb_utils.Tensor("SEEN", np.array([json.dumps(self.told).encode()], dtype=np.object_))
            responses.append(pb_utils.InferenceResponse([answer]))
        return responses
`

const placedConfig = `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
`

// placed is the report of a placedModel.
type placed struct {
	Instance string
	PID      int
	Kind     string
	Device   string
	Visible  string // CUDA_VISIBLE_DEVICES
	Cores    []int
	Count    int
}

// placement queries one instance of a placedModel.
func (s *runningServer) placement(model string, n int) (p placed, err error) {
	status, body, err := s.try("POST", "/v2/models/"+model+"/infer", nil,
		fmt.Appendf(nil, `{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[%d]}]}`, n))
	if err != nil {
		return p, err
	}
	if status != http.StatusOK {
		return p, fmt.Errorf("status %d: %s", status, body)
	}
	return p, json.Unmarshal([]byte(seenIn(s.t, body)), &p)
}

// instancesNow returns the instances that respond to n concurrent requests.
func (s *runningServer) instancesNow(model string, n int) string {
	s.t.Helper()
	var mu sync.Mutex
	names := map[string]bool{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			p, err := s.placement(model, 20)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.t.Errorf("%s: %v", model, err)
				return
			}
			names[p.Instance] = true
		})
	}
	all.Wait()
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// TestInstancesChangeWithoutLoss changes the number of instances under constant load, by loads and
// by the administration endpoint. No request may be lost, and removed instances must finish theirs.
func TestInstancesChangeWithoutLoss(t *testing.T) {
	root := filepath.Join(writeFiles(t, map[string]string{
		"models/m/config.pbtxt": placedConfig + "instance_group [ { count: 1 kind: KIND_CPU } ]", "models/m/1/model.py": placedModel,
	}), "models")
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=m")
	first, err := s.placement("m", 0)
	if err != nil {
		t.Fatal(err)
	}

	// These clients send requests all the time.
	var stop atomic.Bool
	var asked atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				if _, err := s.placement("m", 1); err != nil {
					t.Errorf("a request was lost: %v", err)
					return
				}
				asked.Add(1)
			}
		})
	}
	in := func(name, state string) string {
		return fmt.Sprintf(`{"version":"1","name":%q,"state":%q}`, name, state)
	}
	set := func(count int, want string) {
		t.Helper()
		status, body := s.request("POST", "/v2/repository/models/m/instances", fmt.Sprintf(`{"count":%d}`, count))
		// The reply also lists removed instances that are still busy.
		for _, name := range []string{"m_0_1", "m_0_2"} {
			body = strings.Replace(body, ","+in(name, "DRAINING"), "", 1)
		}
		if status != http.StatusOK || body != `{"name":"m","instances":[`+want+`]}` {
			t.Fatalf("%d instances: %d %s", count, status, body)
		}
	}
	set(3, in("m_0_0", "READY")+","+in("m_0_1", "READY")+","+in("m_0_2", "READY"))
	testkit.Eventually(t, startLimit, func() bool { return s.instancesNow("m", 8) == "m_0_0 m_0_1 m_0_2" })
	if _, body := s.request("GET", "/v2/models/m/config", ""); !strings.Contains(body, `"count":3`) {
		t.Errorf("the config is %s", body)
	}
	set(1, in("m_0_0", "READY"))
	testkit.Eventually(t, startLimit, func() bool { return len(s.stubs()) == 1 })

	// A load does the same if its config has no other change.
	load := func(groups string) (int, string) {
		config := `{"backend":"python","input":[{"name":"N","data_type":"TYPE_INT32","dims":[1]}],"output":[{"name":"SEEN","data_type":"TYPE_STRING","dims":[1]}],"instance_group":` + groups + `}`
		body, err := json.Marshal(map[string]any{"parameters": map[string]any{"config": config}})
		if err != nil {
			t.Fatal(err)
		}
		return s.request("POST", "/v2/repository/models/m/load", string(body))
	}
	if status, body := load(`[{"count":1,"kind":"KIND_CPU"},{"name":"more","count":1,"kind":"KIND_MODEL"}]`); status != http.StatusOK {
		t.Fatalf("load: %d %s", status, body)
	}
	testkit.Eventually(t, startLimit, func() bool { return s.instancesNow("m", 8) == "m_0_0 more_0" })
	last, err := s.placement("m", 0)
	for ; err == nil && last.Instance != "m_0_0"; last, err = s.placement("m", 0) {
	}
	if err != nil || last.PID != first.PID || last.Count != 1 {
		t.Errorf("the instance that stays is %+v, was %+v; %v", last, first, err)
	}
	stop.Store(true)
	clients.Wait()
	if got := s.countsOf("m"); !strings.Contains(got, "fail 0") || !strings.HasPrefix(got, fmt.Sprint(s.succeeded("m"))+" inferences") || s.succeeded("m") < asked.Load() {
		t.Errorf("of %d requests the statistics say %s", asked.Load(), got)
	}

	// A removed instance must finish its requests while its successor serves.
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			if _, err := s.placement("m", -1); err != nil {
				t.Errorf("a request that waits: %v", err)
			}
		})
	}
	testkit.Eventually(t, startLimit, func() bool {
		marks, _ := filepath.Glob(filepath.Join(root, "..", "busy-*"))
		return len(marks) == 2
	})
	if status, body := load(`[{"name":"new","count":1,"kind":"KIND_CPU","host_policy":"other"}]`); status != http.StatusOK {
		t.Fatalf("load: %d %s", status, body)
	}
	if got := s.instancesNow("m", 3); got != "new_0" {
		t.Errorf("%s answer", got)
	}
	if n := len(s.stubs()); n != 3 {
		t.Errorf("%d stubs, want 3, as two wait", n)
	}
	if err := os.WriteFile(filepath.Join(root, "..", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	busy.Wait()
	testkit.Eventually(t, startLimit, func() bool { return len(s.stubs()) == 1 })

	// An instance that fails to start must change nothing.
	if err := os.WriteFile(filepath.Join(root, "m", "1", "model.py"), []byte(placedModel+"\nraise RuntimeError('worse')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, body := s.request("POST", "/v2/repository/models/m/instances", `{"count":2}`)
	if status != http.StatusInternalServerError || !strings.Contains(body, "worse") {
		t.Errorf("got %d %s", status, body)
	}
	if got := s.instancesNow("m", 3); got != "new_0" {
		t.Errorf("%s answer", got)
	}
	for body, want := range map[string]string{
		`{"count":0}`:             "400 instances of model 'm': 'count' is 0, want a whole number from 1 to 1024",
		`{"count":1,"group":"x"}`: "400 instances of model 'm': 'group' is \"x\", want 'new'",
		`{"count":`:               `400 instances of model 'm': the body is not JSON: Invalid value. at 9; want {"count":<number>,"group":<name>}, of which the group may be absent`,
		`{"counts":1}`:            "400 instances of model 'm': 'counts' is not known, want 'count' and 'group'",
	} {
		status, answer := s.request("POST", "/v2/repository/models/m/instances", body)
		if got := fmt.Sprintf("%d %s", status, errorOf(t, answer)); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	if status, answer := s.request("POST", "/v2/repository/models/nobody/instances", `{"count":1}`); status != http.StatusNotFound ||
		errorOf(t, answer) != "Request for unknown model: 'nobody' is not found" {
		t.Errorf("an unknown model: got %d %s", status, answer)
	}
}

// succeeded returns the number of successful requests.
func (s *runningServer) succeeded(model string) (n int64) {
	s.t.Helper()
	_, body := s.request("GET", "/v2/models/"+model+"/stats", "")
	var reply struct {
		Models []struct {
			Stats struct{ Success struct{ Count int64 } } `json:"inference_stats"`
		} `json:"model_stats"`
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || len(reply.Models) != 1 {
		s.t.Fatalf("statistics: %v: %s", err, body)
	}
	return reply.Models[0].Stats.Success.Count
}

// TestPassiveInstancesTakeNoRequests checks that passive instances execute nothing.
func TestPassiveInstancesTakeNoRequests(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"mixed/config.pbtxt": placedConfig + "instance_group [ { count: 2 kind: KIND_CPU passive: true }, { count: 1 kind: KIND_CPU } ]", "mixed/1/model.py": placedModel,
		"alone/config.pbtxt": placedConfig + "instance_group [ { count: 1 kind: KIND_CPU passive: true } ]", "alone/1/model.py": placedModel,
	})
	s := start(t, testkit.Python(t).Path, root)
	if got := s.instancesNow("mixed", 6); got != "mixed_1_0" {
		t.Errorf("%s answer", got)
	}
	if n := len(s.stubs()); n != 4 {
		t.Errorf("%d stubs, want 4", n)
	}
	if status, body := s.request("GET", "/v2/models/alone/ready", ""); status != http.StatusOK {
		t.Errorf("a model of passive instances is not ready: %d %s", status, body)
	}
	status, body := s.request("POST", "/v2/models/alone/infer", `{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[0]}]}`)
	if want := "model 'alone' has only passive instances, which take no requests"; status != http.StatusServiceUnavailable || errorOf(t, body) != want {
		t.Errorf("got %d %s, want %s", status, body, want)
	}
}

// TestHostPolicyPlacesInstances checks that instances run on the cores of their --host-policy.
func TestHostPolicyPlacesInstances(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil || runtime.NumCPU() < 2 || !mine.IsSet(0) || !mine.IsSet(1) {
		t.Skip("cores 0 and 1 are needed")
	}
	model := func(policy string) string {
		return placedConfig + "instance_group [ { count: 1 kind: KIND_CPU " + policy + " } ]"
	}
	root := writeFiles(t, map[string]string{
		"plain/config.pbtxt": model(""), "plain/1/model.py": placedModel,
		"mine/config.pbtxt": model(`host_policy: "mine"`), "mine/1/model.py": placedModel,
		"free/config.pbtxt": model(`host_policy: "unknown"`), "free/1/model.py": placedModel,
		"bad/config.pbtxt": model(`host_policy: "bad"`), "bad/1/model.py": placedModel,
	})
	s := launch(t, testkit.Python(t).Path, root, "--host-policy=cpu,cpu-cores=0-0", "--host-policy=mine,cpu-cores=1-1", "--host-policy=bad,cpu-cores=1",
		"--exit-on-error=false", "--strict-readiness=false")
	s.waitReady()
	for model, want := range map[string]string{"plain": "[0]", "mine": "[1]"} {
		if p, err := s.placement(model, 0); err != nil || fmt.Sprint(p.Cores) != want {
			t.Errorf("%s runs on %v, %v; want %s", model, p.Cores, err, want)
		}
	}
	if p, err := s.placement("free", 0); err != nil || len(p.Cores) < 2 {
		t.Errorf("free runs on %v, %v", p.Cores, err)
	}
	if got, want := s.index()["bad"].Reason, "Invalid argument: host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s = launch(t, testkit.Python(t).Path, root, "--host-policy=cpu,colour=red")
	if status := s.wait(startLimit); status != 1 || !strings.Contains(s.log.String(),
		"error: setting host policy: Unsupported - Unsupported host policy setting 'colour' is specified, supported settings are 'numa-node', 'cpu-cores'") {
		t.Errorf("exit status %d:\n%s", status, s.log)
	}
}

// TestRetiredInstanceFinishesItsSequence removes an instance that has a sequence. The sequence must
// continue on that instance to its end.
func TestRetiredInstanceFinishesItsSequence(t *testing.T) {
	root := filepath.Join(writeFiles(t, map[string]string{
		"models/m/config.pbtxt": placedConfig + "sequence_batching { direct { } max_sequence_idle_microseconds: 600000000 } instance_group [ { count: 2 kind: KIND_CPU } ]",
		"models/m/1/model.py":   placedModel,
	}), "models")
	s := start(t, testkit.Python(t).Path, root, "--model-control-mode=explicit", "--load-model=m")
	ask := func(id int, flags string) string {
		t.Helper()
		status, body := s.request("POST", "/v2/models/m/infer", fmt.Sprintf(
			`{"parameters":{"sequence_id":%d%s},"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[0]}]}`, id, flags))
		if status != http.StatusOK {
			t.Fatalf("sequence %d: %d %s", id, status, body)
		}
		var p placed
		if err := json.Unmarshal([]byte(seenIn(t, body)), &p); err != nil {
			t.Fatal(err)
		}
		return p.Instance
	}
	const begin, end = `,"sequence_start":true`, `,"sequence_end":true`
	homes := map[int]string{1: ask(1, begin), 2: ask(2, begin)}
	if homes[1] == homes[2] {
		t.Fatalf("both sequences are at %s", homes[1])
	}
	if status, body := s.request("POST", "/v2/repository/models/m/instances", `{"count":1}`); status != http.StatusOK || !strings.Contains(body, "DRAINING") {
		t.Fatalf("one instance: %d %s", status, body)
	}
	for id, home := range homes {
		if got := ask(id, ""); got != home {
			t.Errorf("sequence %d went on at %s, was at %s", id, got, home)
		}
	}
	if n := len(s.stubs()); n != 2 {
		t.Errorf("%d stubs while both sequences live, want 2", n)
	}
	for id, home := range homes {
		if got := ask(id, end); got != home {
			t.Errorf("sequence %d ended at %s, was at %s", id, got, home)
		}
	}
	testkit.Eventually(t, startLimit, func() bool { return len(s.stubs()) == 1 })
	if got := ask(3, begin+end); got != "m_0_0" {
		t.Errorf("a new sequence is at %s", got)
	}
}

// TestWarmupOfStackedBatches checks the warm-up of a model with stacked batches under the rate
// limiter.
func TestWarmupOfStackedBatches(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"m/config.pbtxt": warmedConfig + `dynamic_batching { } parameters { key: "BATCH_MODE" value { string_value: "stacked" } } instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 1 } ] } } ]` +
			warmupSample("s", "batch_size: 3", "IN", "INT32", "2", "zero_data: true"),
		"m/1/model.py": strings.Replace("FAILS, RANDOM, DECOUPLED = False, False, False\n"+warmedModel, "[[seen.encode()]]", "[[seen.encode()]] * requests[0].inputs()[0].shape()[0]", 1),
	})
	s := start(t, testkit.Python(t).Path, root, "--rate-limit=execution_count")
	_, body := s.request("POST", "/v2/models/m/infer", `{"inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[5,6]}]}`)
	if got, want := seenIn(t, body), `[[[["IN", "int32", [3, 2], [0, 0, 0, 0, 0, 0]]]]]`; got != want {
		t.Errorf("the warm-up has shown %s, want %s", got, want)
	}
}

// TestSlowRequestsGoRound sends requests one after another, with pauses, to two instances. They
// must respond in turn, so that users see both.
func TestSlowRequestsGoRound(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"m/config.pbtxt": loadConfig + "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
		"m/1/model.py":   tells("self.name", "", "def initialize(self, args):\n    self.name = args['model_instance_name']"),
	}))
	var names []string
	for range 5 {
		time.Sleep(150 * time.Millisecond) // the pause is part of the test; a longer one does not matter
		_, body := s.request("POST", "/v2/models/m/infer", `{"inputs":[{"name":"IN","datatype":"FP32","shape":[1],"data":[1]}]}`)
		for _, name := range []string{"m_0_0", "m_0_1"} {
			if strings.Contains(body, name) {
				names = append(names, name)
			}
		}
	}
	if got := strings.Join(names, " "); got != "m_0_0 m_0_1 m_0_0 m_0_1 m_0_0" && got != "m_0_1 m_0_0 m_0_1 m_0_0 m_0_1" {
		t.Errorf("answered by %s, want each in turn", got)
	}
}
