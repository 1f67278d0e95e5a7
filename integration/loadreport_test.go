package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// blocksModel publishes the metric of load reports. Each request sets the number of used blocks to
// its input.
const blocksModel = `
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        self.family = pb.MetricFamily(name="nv_trt_llm_kv_cache_block_metrics", description="blocks", kind=pb.MetricFamily.GAUGE)
        self.metrics = {}
        for kind, value in (("max", 3), ("tokens_per", 64), ("used", 0), ("free", 3)):
            self.metrics[kind] = self.family.Metric(labels={"kv_cache_block_type": kind, "model": args["model_name"], "version": "1"})
            self.metrics[kind].set(value)
    def execute(self, requests):
        replies = []
        for r in requests:
            n = pb.get_input_tensor_by_name(r, "N").as_numpy()
            self.metrics["used"].set(float(n.flat[0]))
            replies.append(pb.InferenceResponse([pb.Tensor("OUT", n)]))
        return replies
`

// loadReport returns the load header of the reply to a generate request.
func loadReport(t *testing.T, port int, path, format string, number int) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), strings.NewReader(fmt.Sprintf(`{"N":[%d]}`, number)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("endpoint-load-metrics-format", format)
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("%s: got status %d, want 200 with or without a report", path, reply.StatusCode)
	}
	return reply.Header.Get("endpoint-load-metrics")
}

// TestGenerationsReportTheLoadOfTheModel checks that replies on the main port and on SageMaker's
// port report the load from the model's metrics after its response.
func TestGenerationsReportTheLoadOfTheModel(t *testing.T) {
	t.Setenv("SAGEMAKER_TRITON_INFERENCE_TYPE", "generate_stream")
	repository := cloudRepository(t)
	testkit.WriteFiles(t, repository, map[string]string{"batch/1/model.py": blocksModel})
	flags, ports := cloudFlags(t)
	s := start(t, testkit.Python(t).Path, repository, flags[:2]...)
	for _, c := range []struct {
		port         int
		path, format string
		used         int
		want         string
	}{
		{s.http, "/v2/models/batch/generate", "json", 1, `JSON {"named_metrics":{"kv_cache_utilization":0.3333333333333333,"max_token_capacity":192}}`},
		{s.http, "/v2/models/batch/generate_stream", "text", 1, "TEXT named_metrics.kv_cache_utilization=0.333333, named_metrics.max_token_capacity=192"},
		{ports["S"], "/invocations", "text", 3, "TEXT named_metrics.kv_cache_utilization=1.000000, named_metrics.max_token_capacity=192"},
		{s.http, "/v2/models/batch/generate", "other", 1, ""},
		{s.http, "/v2/models/batch/generate", "json", -1, ""},
	} {
		if got := loadReport(t, c.port, c.path, c.format, c.used); got != c.want {
			t.Errorf("%s, %s, %d used: got %q, want %q", c.path, c.format, c.used, got, c.want)
		}
	}
	for _, line := range []string{
		"endpoint-load-metrics-format is 'other', want 'json' or 'text': the reply has no load report",
		"metric 'nv_trt_llm_kv_cache_block_metrics' has no sample with kv_cache_block_type 'used': the reply has no load report",
	} {
		if !s.prints(line) {
			t.Errorf("the log lacks: %s", line)
		}
	}
}
