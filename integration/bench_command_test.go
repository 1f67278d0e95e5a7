package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// benchModels creates the models to which `nereid bench` sends requests.
func benchModels(t *testing.T) string {
	t.Helper()
	const echo = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(x.name().replace("IN", "OUT"), x.as_numpy()) for x in r.inputs() if x.name().startswith("IN")])
            for r in requests
        ]
`
	const streams = `
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            sender = r.get_response_sender()
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`
	const tensors = `
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 8 ] } ]
`
	return writeFiles(t, map[string]string{
		"batches/1/model.py": echo, "batches/config.pbtxt": "max_batch_size: 8\ndynamic_batching {}\n" + tensors,
		"streams/1/model.py": streams, "streams/config.pbtxt": "model_transaction_policy { decoupled: true }\n" + tensors,
		"sequences/1/model.py": echo, "sequences/config.pbtxt": `max_batch_size: 4
sequence_batching { oldest { max_candidate_sequences: 16 }
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }` + tensors,
		"texts/1/model.py": echo, "texts/config.pbtxt": `backend: "python"
input [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]
`,
	})
}

// benchResult is the part of the output of `nereid bench --json` that the tests use.
type benchResult struct {
	Levels []struct {
		Requests  uint64
		Responses uint64
		Errors    uint64
		Texts     []string                              `json:"error_texts"`
		InferPS   float64                               `json:"inferences_per_second"`
		Latency   struct{ Mean, P50, P99, Max float64 } `json:"latency_us"`
		Server    *struct {
			Total    float64
			Infer    float64 `json:"compute_infer"`
			PerBatch float64 `json:"inferences_per_execution"`
		} `json:"server_us"`
	}
}

// bench runs `nereid bench`.
func (s *runningServer) bench(arguments ...string) (r benchResult) {
	s.t.Helper()
	binary, err := buildServer()
	if err != nil {
		s.t.Fatal(err)
	}
	port := s.grpc
	if !slices.Contains(arguments, "--protocol=grpc") && !slices.Contains(arguments, "--protocol=stream") {
		port = s.http
	}
	line := append([]string{"bench", "--json=-", "--url", fmt.Sprintf("127.0.0.1:%d", port)}, arguments...)
	output, err := exec.Command(binary, line...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", line, err, output)
	}
	if err := json.Unmarshal(output, &r); err != nil {
		s.t.Fatalf("%s: %v\n%s", line, err, output)
	}
	return r
}

// TestBenchCommand measures each kind of model over each protocol and checks the results for
// plausibility.
func TestBenchCommand(t *testing.T) {
	testkit.Story(t)
	s := start(t, testkit.Pythons(t)[0].Path, benchModels(t), "--allow-client-shm=true")
	for _, arguments := range []string{
		"batches --concurrency=1:3:2",
		"batches --protocol=grpc --concurrency=3 --batch=2",
		"batches --protocol=stream --concurrency=3 --batch=8",
		"batches --shared-memory=system --concurrency=2 --batch=4",
		"batches --shared-memory=system --protocol=grpc --concurrency=2",
		"batches --rate=50",
		"batches --protocol=stream --rate=50 --input=IN=zero",
		"sequences --concurrency=3 --sequence-length=4",
		"sequences --protocol=grpc --concurrency=3",
		"sequences --protocol=stream --concurrency=3",
		"streams --protocol=stream --concurrency=2",
		"texts --shape=IN:3 --concurrency=2",
		"texts --shape=IN:3 --protocol=grpc",
	} {
		model, _, _ := strings.Cut(arguments, " ")
		r := s.bench(append(strings.Fields(arguments), "--duration=300ms", "--warm-up=50ms")...)
		for _, l := range r.Levels {
			if l.Requests == 0 || l.Errors != 0 || l.Latency.P50 <= 0 || l.Latency.P50 > l.Latency.P99 || l.Latency.P99 > l.Latency.Max || l.InferPS <= 0 {
				t.Errorf("%s: got %+v", arguments, l)
			}
			if l.Server == nil || l.Server.Infer <= 0 || l.Server.Infer > l.Server.Total {
				t.Errorf("%s: got times of the server %+v", arguments, l.Server)
			}
			if want := l.Requests * 3; model == "streams" && l.Responses != want {
				t.Errorf("%s: got %d responses to %d requests, want three each", arguments, l.Responses, l.Requests)
			}
			if batch := regexp.MustCompile("--batch=([0-9]+)").FindStringSubmatch(arguments); batch != nil && l.Server != nil {
				if want, _ := strconv.ParseFloat(batch[1], 64); l.Server.PerBatch < want {
					t.Errorf("%s: got %v inferences per execution", arguments, l.Server.PerBatch)
				}
			}
		}
	}
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	for protocol, port := range map[string]int{"http": s.http, "grpc": s.grpc} {
		output, err := exec.Command(binary, "bench", "batchs", "--protocol="+protocol, fmt.Sprintf("--url=127.0.0.1:%d", port)).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "; did you mean batches? ready models: batches, sequences, streams, texts") {
			t.Errorf("a model that is not there, by %s: got %v and %q", protocol, err, output)
		}
	}
	if n := s.figure("nereid_client_regions"); n != 0 {
		t.Errorf("%v regions are left, want none", n)
	}
}

// TestBenchAgreesWithTritonsPerfAnalyzer checks that `nereid bench` and perf_analyzer report
// similar rates and latencies for the same model.
func TestBenchAgreesWithTritonsPerfAnalyzer(t *testing.T) {
	tool := filepath.Join(yardstick(t), "perf_analyzer")
	s := start(t, testkit.Pythons(t)[0].Path, writeFiles(t, map[string]string{
		// The model is slower than the tools' overhead, because the test compares how they count.
		"m/1/model.py": `
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.002 * len(requests))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
`,
		"m/config.pbtxt": `backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 8 ] } ]
`,
	}))
	figure := regexp.MustCompile(`throughput: ([0-9.]+) infer/sec, latency ([0-9]+) usec`)
	for protocol, port := range map[string]int{"http": s.http, "grpc": s.grpc} {
		for _, concurrency := range []string{"1", "4"} {
			var rates, latencies []float64
			for range 3 {
				output, err := exec.Command(tool, "-m", "m", "-i", protocol, "-u", fmt.Sprintf("127.0.0.1:%d", port), "--concurrency-range", concurrency,
					"--measurement-interval", "1000", "--max-trials", "20", "--stability-percentage", "30").CombinedOutput()
				found := figure.FindSubmatch(output)
				if err != nil || found == nil {
					t.Fatalf("%v\n%s", err, output)
				}
				rate, _ := strconv.ParseFloat(string(found[1]), 64)
				latency, _ := strconv.ParseFloat(string(found[2]), 64)
				l := s.bench("m", "--protocol="+protocol, "--concurrency="+concurrency, "--duration=1s", "--warm-up=200ms").Levels[0]
				rates, latencies = append(rates, l.InferPS/rate), append(latencies, l.Latency.Mean/latency)
			}
			for what, ratios := range map[string][]float64{"rate": rates, "latency": latencies} {
				slices.SortFunc(ratios, cmp.Compare)
				if m := ratios[len(ratios)/2]; m < .9 || m > 1.1 {
					t.Errorf("%s, %s callers: %s is %.2f times that of perf_analyzer (all: %.2f), want 0.9 to 1.1", protocol, concurrency, what, m, ratios)
				}
			}
		}
	}
}
