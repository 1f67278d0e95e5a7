package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// batchModel responds to each request with the ids of all requests in its batch.
const batchModel = `
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.path = os.path.join(config["parameters"]["directory"]["string_value"], args["model_name"])

    def execute(self, requests):
        ids = [r.request_id() for r in requests]
        for request_id in ids:
            open(f"{self.path}.{request_id}.begun", "w").close()
            while request_id.startswith("hold") and not os.path.exists(f"{self.path}.{request_id}"):
                time.sleep(0.002)
            if request_id.startswith("slow"):
                time.sleep(0.002)
        if "raises" in ids:
            raise ValueError("for all of them")
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().shape[0]
            batch = np.full((rows, 1), "+".join(ids).encode(), dtype=np.object_)
            if request.request_id() == "fails":
                response = pb_utils.InferenceResponse(error=pb_utils.TritonError("as it was asked to"))
            else:
                response = pb_utils.InferenceResponse([pb_utils.Tensor("BATCH", batch)])
            if self.decoupled:
                request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            responses.append(response)
        return None if self.decoupled else responses
`

// batchConfig returns the config of a batchModel that uses marker files in a directory.
func batchConfig(directory, batching, more string) string {
	input := `input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]`
	if strings.Contains(more, "input [") {
		input = ""
	}
	if !strings.Contains(more, "max_batch_size") {
		more += "max_batch_size: 4\n"
	}
	if !strings.Contains(more, "instance_group") {
		more += "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
	}
	return fmt.Sprintf(`backend: "python"
%s
output [ { name: "BATCH" data_type: TYPE_STRING dims: [ 1 ] } ]
parameters { key: "directory" value { string_value: "%s" } }
dynamic_batching { %s }
%s`, input, directory, batching, more)
}

// batchStories are the functions of testdata/batching.py, each with the settings of
// dynamic_batching and the rest of its model's config.
var batchStories = map[string][2]string{
	"whatever_waits": {},
	"sizes":          {},
	"preferred":      {"preferred_batch_size: [ 2, 4 ]", "max_batch_size: 8\n"},
	"alike":          {},
	"differs":        {},
	"ragged":         {"", "input [ { name: \"X\" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n"},
	"priorities":     {"priority_levels: 3 default_priority_level: 2", "max_batch_size: 2\n"},
	"rejected":       {"default_queue_policy { default_timeout_microseconds: 100000 allow_timeout_override: true }", ""},
	"delayed":        {"default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 150000 }", "max_batch_size: 2\n"},
	"unheard":        {"default_queue_policy { default_timeout_microseconds: 50000000 }", "max_batch_size: 2\n"},
	"by_level": {"priority_levels: 2 default_priority_level: 2 default_queue_policy { default_timeout_microseconds: 100000 } " +
		"priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 50000000 " +
		"allow_timeout_override: true max_queue_size: 3 } }", "max_batch_size: 2\n"},
	"full":            {"default_queue_policy { max_queue_size: 2 }", "max_batch_size: 1\n"},
	"cancelled":       {},
	"ordered":         {"preserve_ordering: true", "instance_group [ { count: 2 kind: KIND_CPU } ]\n"},
	"waits_for_more":  {"max_queue_delay_microseconds: 50000000", "max_batch_size: 2\n"},
	"waits_in_vain":   {"max_queue_delay_microseconds: 300000", ""},
	"partial_failure": {},
	"whole_failure":   {},
	"many":            {"", "instance_group [ { count: 2 kind: KIND_CPU } ]\n"},
}

// ownStories are not run on Triton, which cannot serve their models.
var ownStories = map[string][2]string{
	"one_by_one": {"", "parameters { key: \"BATCH_STRATEGY\" value { string_value: \"single\" } }\n"},
	"by_volume": {"", "max_batch_size: 64\ninput [ { name: \"X\" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true } ]\n" +
		"parameters { key: \"BATCH_STRATEGY\" value { string_value: \"volume\" } }\n" +
		"parameters { key: \"MAX_BATCH_VOLUME_BYTES\" value { string_value: \"12\" } }\n"},
}

// batchRepository creates a repository with a model for each story.
func batchRepository(t *testing.T, directory string, stories ...map[string][2]string) (repository string, names []string) {
	files := map[string]string{}
	for _, list := range stories {
		for name, config := range list {
			names = append(names, name)
			files[name+"/config.pbtxt"] = batchConfig(directory, config[0], config[1])
			files[name+"/1/model.py"] = batchModel
		}
	}
	return writeFiles(t, files), names
}

// TestDynamicBatcherBatchesForTheRealClient runs the dynamic batcher's stories with real stubs and
// the real client.
func TestDynamicBatcherBatchesForTheRealClient(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			directory := t.TempDir()
			repository, names := batchRepository(t, directory, batchStories, ownStories)
			s := start(t, python.Path, repository)
			s.runClient("batching.py", fmt.Sprintf("127.0.0.1:%d", s.metrics), directory, strings.Join(names, ","))
		})
	}
}

// TestDelaySchedulerHoldsTheFirstBatch checks that the first batch waits for the number of requests
// in TRITONSERVER_DELAY_SCHEDULER.
func TestDelaySchedulerHoldsTheFirstBatch(t *testing.T) {
	t.Setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
	directory := t.TempDir()
	repository, _ := batchRepository(t, directory, map[string][2]string{"held_at_first": {}})
	s := start(t, testkit.Python(t).Path, repository)
	s.runClient("batching.py", fmt.Sprintf("127.0.0.1:%d", s.metrics), directory, "held_at_first")
}

// TestDynamicBatchingLikeTriton runs stories on a real Triton, except those that depend on when it
// forms batches. Triton forms two batches in advance, and whether a request joins the second is a
// race.
func TestDynamicBatchingLikeTriton(t *testing.T) {
	dir := yardstick(t)
	directory := t.TempDir()
	repository, _ := batchRepository(t, directory, batchStories)
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	s := startTriton(t, dir, repository)
	s.waitReady()
	s.runClient("batching.py", fmt.Sprintf("127.0.0.1:%d", s.metrics), directory,
		"differs,ragged,priorities,rejected,unheard,by_level,full,ordered,waits_for_more,waits_in_vain,many")
}

// TestBatchLibraryIsRefusedWithAdvice checks that a model with a C++ batching library is rejected,
// and that the error suggests BATCH_STRATEGY.
func TestBatchLibraryIsRefusedWithAdvice(t *testing.T) {
	directory := t.TempDir()
	files := map[string]string{}
	for name, path := range map[string]string{"there": "1/lib.so", "missing": "1/none.so", "escapes": "../../lib.so"} {
		files[name+"/config.pbtxt"] = batchConfig(directory, "", fmt.Sprintf("parameters { key: \"TRITON_BATCH_STRATEGY_PATH\" value { string_value: %q } }\n", path))
		files[name+"/1/model.py"] = batchModel
	}
	files["there/1/lib.so"] = ""
	repository := writeFiles(t, files)
	s := launch(t, testkit.Python(t).Path, repository, "--exit-on-error=false")
	s.until("live", func() bool {
		status, _, err := s.try("GET", "/v2/health/live", nil, nil)
		return err == nil && status == 200
	})
	s.until("done", func() bool { return len(s.index()) == 3 && s.index()["there"].Reason != "" })
	for name, want := range map[string]string{
		"there":   "Unsupported: model 'there' has the batching library 1/lib.so, which this server cannot load; the parameter BATCH_STRATEGY names a strategy that it has itself",
		"missing": "Not found: Batching library path not found: 1/none.so",
		"escapes": "Invalid argument: Batching library path escapes model repository.",
	} {
		if got := s.index()[name].Reason; got != want {
			t.Errorf("model %s: got %q, want %q", name, got, want)
		}
	}
}
