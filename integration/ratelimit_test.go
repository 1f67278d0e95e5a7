package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// exclusiveModel fails if another instance executes at the same time. For an input above 0, it also
// makes a BLS request to the model "called".
const exclusiveModel = `
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.file = os.path.join(args["model_repository"], "..", "..", "busy")
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            n = request.inputs()[0]
            alone = not CALLED
            if alone:
                os.close(os.open(self.file, os.O_CREAT | os.O_EXCL))  # raises if it is there
                with open(self.file + ".turns", "a") as turns:
                    turns.write(self.name + " ")
            while os.path.exists(self.file + ".hold"):
                time.sleep(0.002)
            time.sleep(0.003)
            error = None
            if n.as_numpy()[0] > 0:
                answer = pb_utils.InferenceRequest(model_name="called", requested_output_names=["OUT"],
                                                   inputs=[pb_utils.Tensor("N", np.zeros(1, np.int32))]).exec()
                error = answer.error() if answer.has_error() else None
            if alone:
                os.unlink(self.file)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", n.as_numpy())], error))
        return responses
`

const exclusiveConfig = `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`

func limitedRepository(t *testing.T) string {
	limited := func(count, rest string) string {
		return exclusiveConfig + "instance_group [ { count: " + count + " kind: KIND_CPU rate_limiter { " + rest + " } } ]"
	}
	const one = `resources [ { name: "R" count: 1 } ]`
	return filepath.Join(writeFiles(t, map[string]string{
		"models/often/config.pbtxt": limited("2", one+" priority: 1"), "models/often/1/model.py": "CALLED = False\n" + exclusiveModel,
		"models/seldom/config.pbtxt": limited("2", one+" priority: 3"), "models/seldom/1/model.py": "CALLED = False\n" + exclusiveModel,
		"models/called/config.pbtxt": limited("1", one), "models/called/1/model.py": "CALLED = True\n" + exclusiveModel,
		"models/hungry/config.pbtxt": limited("1", `resources [ { name: "R" count: 2 } ]`), "models/hungry/1/model.py": "CALLED = False\n" + exclusiveModel,
		"models/global/config.pbtxt": limited("1", `resources [ { name: "R" global: true count: 1 } ]`), "models/global/1/model.py": "CALLED = False\n" + exclusiveModel,
	}), "models")
}

const exclusiveBody = `{"inputs":[{"name":"N","datatype":"INT32","shape":[1],"data":[%d]}]}`

// pendingOf returns the number of pending requests of a model in the metrics.
func pendingOf(metrics, model string) (n int) {
	_, rest, _ := strings.Cut(metrics, `nv_inference_pending_request_count{model="`+model+`",version="1"} `)
	_, _ = fmt.Sscan(rest, &n)
	return n
}

// TestRateLimitGivesModelsTurns checks that two models take turns according to their priorities if
// the resource suffices for one instance.
func TestRateLimitGivesModelsTurns(t *testing.T) {
	root := limitedRepository(t)
	s := start(t, testkit.Python(t).Path, root, "--rate-limit=execution_count", "--rate-limit-resource=R:1",
		"--model-control-mode=explicit", "--load-model=often", "--load-model=seldom", "--load-model=called")
	for model, want := range map[string]string{
		"hungry": `Invalid argument: Resource count for "R" is limited to 1 which will prevent scheduling of one or more model instances, the minimum required count is 2`,
		"global": `Invalid argument: Resource "R" is present as both global and device-specific resource in the model configuration.`,
	} {
		status, body := s.request("POST", "/v2/repository/models/"+model+"/load", "")
		if want := "load failed for model '" + model + "': version 1 is at UNAVAILABLE state: " + want + ";\n"; status != http.StatusBadRequest || errorOf(t, body) != want {
			t.Errorf("%s: got %d %s, want %s", model, status, body, want)
		}
	}

	// Each model must always have pending requests, so the first request waits until the others
	// have arrived.
	busy := filepath.Join(root, "..", "busy")
	if err := os.WriteFile(busy+".hold", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const each = 60
	var clients sync.WaitGroup
	for _, model := range []string{"often", "seldom"} {
		for range each {
			clients.Go(func() {
				if status, body := s.request("POST", "/v2/models/"+model+"/infer", fmt.Sprintf(exclusiveBody, 0)); status != http.StatusOK {
					t.Errorf("%s: %d %s", model, status, body)
				}
			})
		}
	}
	s.until("all wait", func() bool { // except those that instances have
		text := s.scrape()
		return pendingOf(text, "often") >= each-4 && pendingOf(text, "seldom") >= each-4
	})
	if err := os.Remove(busy + ".hold"); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	text, err := os.ReadFile(busy + ".turns")
	if err != nil {
		t.Fatal(err)
	}
	turns := strings.Fields(string(text))[:each] // while both models have requests
	often := strings.Count(strings.Join(turns, " "), "often")
	if seldom := each - often; often < 2*seldom || often > 4*seldom {
		t.Errorf("often had %d turns, seldom %d; want three times as many", often, seldom)
	}

	// A called model need not wait for a resource that its caller holds.
	if status, body := s.request("POST", "/v2/models/often/infer", fmt.Sprintf(exclusiveBody, 1)); status != http.StatusOK {
		t.Errorf("a call of who holds the resource: %d %s", status, body)
	}
	if !s.prints("EXEC_COUNT") {
		t.Error("the table of options does not show the rate limiter")
	}
}

// TestBatchesFillUntilTheirTurn checks that a model's batch grows while another model holds the
// resource, and that its requests count as pending.
func TestBatchesFillUntilTheirTurn(t *testing.T) {
	directory := t.TempDir()
	config := batchConfig(directory, "",
		`instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 1 } ] } } ]`)
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"holds/config.pbtxt": config, "holds/1/model.py": batchModel, "fills/config.pbtxt": config, "fills/1/model.py": batchModel,
	}), "--rate-limit=execution_count", "--rate-limit-resource=R:1")
	var clients sync.WaitGroup
	ask := func(model, id, want string) {
		clients.Go(func() {
			body := fmt.Sprintf(`{"id":"%s","inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[0]}]}`, id)
			if status, answer := s.request("POST", "/v2/models/"+model+"/infer", body); status != http.StatusOK || !strings.Contains(answer, `"`+want+`"`) {
				t.Errorf("%s: %d %s, want it in %s", id, status, answer, want)
			}
		})
	}
	ask("holds", "hold", "hold")
	s.until("the first is executed", func() bool {
		_, err := os.Stat(filepath.Join(directory, "holds.hold.begun"))
		return err == nil
	})
	for n := range 6 {
		want := "0+1+2+3"
		if n >= 4 {
			want = "4+5"
		}
		ask("fills", fmt.Sprint(n), want)
		s.until("it is pending", func() bool { return pendingOf(s.scrape(), "fills") == n+1 })
	}
	if err := os.WriteFile(filepath.Join(directory, "holds.hold"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	s.stop()
}

// stackedCaller returns the output of another model.
const stackedCaller = `
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            called = pb_utils.InferenceRequest(model_name="called", requested_output_names=["OUT"],
                                               inputs=[pb_utils.Tensor("N", request.inputs()[0].as_numpy())]).exec()
            error = called.error() if called.has_error() else None
            responses.append(pb_utils.InferenceResponse([] if error else called.output_tensors(), error))
        return responses
`

// TestStackedCallerSharesItsResourceWithTheCallee checks that a stacked batch can call a model that
// needs the resource that the batch holds.
func TestStackedCallerSharesItsResourceWithTheCallee(t *testing.T) {
	t.Setenv("TRITONSERVER_DELAY_SCHEDULER", "2") // so that two requests are stacked
	config := exclusiveConfig + "max_batch_size: 4\n" +
		`instance_group [ { count: 1 kind: KIND_CPU rate_limiter { resources [ { name: "R" count: 1 } ] } } ]` + "\n"
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"calls/config.pbtxt":  config + "dynamic_batching { }\n" + `parameters { key: "BATCH_MODE" value { string_value: "stacked" } }`,
		"calls/1/model.py":    stackedCaller,
		"called/config.pbtxt": config, "called/1/model.py": strings.ReplaceAll(leavesOutModel, "OUT0", "OUT"),
	}), "--rate-limit=execution_count", "--rate-limit-resource=R:1")
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			body := `{"inputs":[{"name":"N","datatype":"INT32","shape":[1,1],"data":[0]}]}`
			if status, answer := s.request("POST", "/v2/models/calls/infer", body); status != http.StatusOK {
				t.Errorf("got %d %s", status, answer)
			}
		})
	}
	clients.Wait()
	s.stop()
}

// TestRateLimitIsOffUnlessAsked checks that rate limiter settings in a config have no effect
// without --rate-limit.
func TestRateLimitIsOffUnlessAsked(t *testing.T) {
	s := start(t, testkit.Python(t).Path, limitedRepository(t), "--rate-limit-resource=R:1")
	var overlapped atomic.Bool
	var clients sync.WaitGroup
	begin := time.Now()
	for range 8 {
		clients.Go(func() {
			for !overlapped.Load() && time.Since(begin) < startLimit {
				status, body := s.request("POST", "/v2/models/often/infer", fmt.Sprintf(exclusiveBody, 0))
				if status != http.StatusOK && strings.Contains(body, "FileExistsError") {
					overlapped.Store(true)
				}
			}
		})
	}
	clients.Wait()
	if !overlapped.Load() {
		t.Error("two instances have not executed at once")
	}
}

// TestRateLimitSameAsTriton checks that both servers load and reject the same models, with the same
// errors.
func TestRateLimitSameAsTriton(t *testing.T) {
	dir := yardstick(t)
	root := limitedRepository(t)
	flags := []string{"--rate-limit=execution_count", "--rate-limit-resource=R:1", "--rate-limit-resource=S:5", "--model-control-mode=explicit"}
	triton := startTriton(t, dir, root, flags...)
	nereid := start(t, "/usr/bin/python3", root, flags...)
	for _, model := range []string{"often", "hungry", "global", "seldom"} {
		path := "/v2/repository/models/" + model + "/load"
		wantStatus, want := triton.request("POST", path, "")
		gotStatus, got := nereid.request("POST", path, "")
		if gotStatus != wantStatus || got != want {
			t.Errorf("%s:\n   Triton: %d %s\n   Nereid: %d %s", model, wantStatus, want, gotStatus, got)
		}
	}
}
