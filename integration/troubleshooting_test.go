package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// troubleText matches the text in a row of docs/troubleshooting.md.
var troubleText = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// largeMetadata prints the error of a gRPC call whose metadata exceeds --grpc-max-header-size.
const largeMetadata = `
import sys
import tritonclient.grpc
try:
    tritonclient.grpc.InferenceServerClient(sys.argv[1]).is_server_live(headers={"x": "v" * 66_000})
except tritonclient.grpc.InferenceServerException as error:
    print(error.message())
`

// troubledModel returns a model.py whose execute has the given statements.
func troubledModel(statements ...string) string {
	return "import os\nimport time\n\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\n" +
		"class TritonPythonModel:\n    def execute(self, requests):\n        " + strings.Join(statements, "\n        ") + "\n"
}

// troubles returns models with the mistakes in docs/troubleshooting.md: config.pbtxt and model.py,
// or "". Two of them wait for the file flag.
func troubles(flag string) map[string][2]string {
	const (
		tensors = "backend: \"python\"\ninput [ { name: \"X\" data_type: TYPE_FP32 dims: [ 4 ] } ]\noutput [ { name: \"Y\" data_type: TYPE_FP32 dims: [ 4 ] } ]\n"
		same    = `return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(r, "X").as_numpy())]) for r in requests]`
	)
	wait := "while not os.path.exists('" + flag + "'): time.sleep(0.001)"
	return map[string][2]string{
		"fine":        {tensors + "max_batch_size: 8\n", troubledModel(same)},
		"bare":        {"", troubledModel(same)},
		"versionless": {tensors, ""},
		"misspelt":    {"backend: \"pyton\"\n", troubledModel(same)},
		"typeless":    {strings.ReplaceAll(tensors, "FP32", "BYTES"), troubledModel(same)},
		"importing":   {tensors, "import a_package_that_is_not_there\n"},
		"broken":      {tensors, "def f(:\n"},
		"classless":   {tensors, "class Model:\n    pass\n"},
		"gpu":         {tensors + "instance_group [ { kind: KIND_GPU } ]\n", troubledModel(same)},
		"raises":      {tensors, troubledModel("raise ValueError('no')")},
		"hoards":      {strings.ReplaceAll(tensors, "[ 4 ]", "[ -1 ]"), troubledModel("self.kept = getattr(self, 'kept', []) + [r.inputs()[0].as_numpy() for r in requests]", "return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(4, np.float32))]) for r in requests]")},
		"dies":        {tensors, troubledModel("os._exit(1)")},
		"outgrows":    {strings.ReplaceAll(tensors, "[ 4 ]", "[ -1 ]"), troubledModel("return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(1 << 25, np.float32))]) for r in requests]")},
		"renamed":     {tensors, "from numpy import a_name_that_is_not_there\n"},
		"unready":     {tensors, "class TritonPythonModel:\n    def initialize(self, args):\n        raise RuntimeError('no weights')\n"},
		"array":       {tensors, troubledModel("return np.zeros(4, np.float32)")},
		"strings":     {tensors, troubledModel("return ['Y']")},
		"unlisted":    {tensors, troubledModel("return [pb_utils.InferenceResponse(pb_utils.Tensor('Y', np.zeros(4, np.float32)))]")},
		"inputless":   {tensors, troubledModel("pb_utils.get_input_tensor_by_name(requests[0], 'Z').as_numpy()")},
		"misnamed":    {tensors, troubledModel("return [pb_utils.InferenceResponse([pb_utils.Tensor('Z', np.zeros(4, np.float32))])]")},
		"doubles":     {tensors, troubledModel("return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(4))])]")},
		"complex":     {tensors, troubledModel("return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(4, np.complex64))]) for r in requests]")},
		"none":        {tensors, troubledModel("return None")},
		"short":       {tensors, troubledModel("return []")},
		"many":        {tensors + "model_transaction_policy { decoupled: true }\n", troubledModel("pass")},
		"circle": {tensors, troubledModel(
			"request = pb_utils.InferenceRequest(model_name='circle', requested_output_names=['Y'], inputs=[pb_utils.Tensor('X', np.zeros(4, np.float32))])",
			"return [pb_utils.InferenceResponse(error=request.exec().error())]",
		)},
		"full": {tensors + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }\nmax_batch_size: 1\n", troubledModel(wait, same)},
		"late": {tensors + "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000 } }\nmax_batch_size: 1\n", troubledModel(wait, same)},
	}
}

// TestTroubleshootingKnowsTheTexts makes each mistake in docs/troubleshooting.md and expects the
// page's text in a reply, the index or the log.
func TestTroubleshootingKnowsTheTexts(t *testing.T) {
	testkit.Story(t)
	page, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := filepath.Join(t.TempDir(), "go")
	files := map[string]string{}
	for name, model := range troubles(flag) {
		if model[0] != "" {
			files[name+"/config.pbtxt"] = model[0]
		}
		if model[1] != "" {
			files[name+"/1/model.py"] = model[1]
		}
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files), "--exit-on-error=false", "--strict-readiness=false", "--request-memory-byte-size=67108864")

	// These requests collect the errors that clients get.
	var said strings.Builder
	var saying sync.Mutex
	ask := func(path, body string) {
		status, answer := s.request("POST", path, body)
		if status < 400 {
			return
		}
		saying.Lock()
		defer saying.Unlock()
		said.WriteString(errorOf(t, answer) + "\n")
	}
	tensor := func(name, shape, datatype string) string {
		return `{"inputs": [{"name": "` + name + `", "shape": ` + shape + `, "datatype": "` + datatype + `", "data": [1, 2, 3, 4]}]}`
	}
	plain, row := tensor("X", "[4]", "FP32"), tensor("X", "[1, 4]", "FP32")
	for _, name := range []string{"bare", "raises", "dies", "complex", "none", "short", "many", "circle", "outgrows", "importing", "missing",
		"array", "strings", "unlisted", "inputless", "misnamed", "doubles"} {
		ask("/v2/models/"+name+"/infer", plain)
	}
	for _, body := range []string{
		plain, tensor("x", "[1, 4]", "FP32"), tensor("X", "[1, 4]", "INT32"), tensor("X", "[2, 4]", "FP32"), `{"inputs": [{"name": "X"`, `{"inputs": []}`,
		strings.Replace(tensor("X", "[9, 4]", "FP32"), "[1", "["+strings.Repeat("1, 2, 3, 4, ", 8)+"1", 1),
		strings.Replace(tensor("X", "[9, 4]", "FP32"), "[1, 2, 3, 4]", "["+strings.Repeat("1, 2, 3, 4, ", 8)+"1, 2, 3, 4]", 1),
	} {
		ask("/v2/models/fine/infer", body)
	}
	ask("/v2/models/fine/versions/3/infer", row)
	ask("/v2/repository/models/fine/load", "")

	// These requests exceed limits.
	large := `{"inputs": [{"name": "X", "shape": [262144], "datatype": "FP32", "data": [0` + strings.Repeat(",0", 262143) + `]}]}`
	for range 80 {
		ask("/v2/models/hoards/infer", large)
	}
	ask("/v2/models/fine/infer", strings.Repeat(" ", 60<<20))
	ask("/v2/repository/index", strings.Repeat(" ", 1<<20+1))
	ask("/v2/models/fine/infer", `{"id": "`+strings.Repeat("x", 1<<16+1)+`", `+row[1:])
	ask("/v2/models/fine/infer", strings.Repeat("[", 101)+strings.Repeat("]", 101))
	client := exec.Command(clientPython(t), "-c", largeMetadata, fmt.Sprintf("127.0.0.1:%d", s.grpc))
	client.Stderr = os.Stderr // only the error of the call counts as said
	metadata, err := client.Output()
	if err != nil {
		t.Fatalf("a call with too much metadata: %v", err)
	}
	said.Write(metadata)

	// In "full", one request executes, one waits, and the third is rejected. In "late", the second
	// waits for too long. The flag releases the executing ones.
	var wait sync.WaitGroup
	for _, name := range []string{"full", "full", "full", "late", "late"} {
		wait.Go(func() { ask("/v2/models/"+name+"/infer", row) })
	}
	heard := func(text string) bool {
		saying.Lock()
		defer saying.Unlock()
		return strings.Contains(said.String(), text)
	}
	s.until("a queue that is full, and a request that waited for too long", func() bool {
		return heard("Exceeds maximum queue size") && heard("Request timeout expired")
	})
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wait.Wait()

	var index strings.Builder
	for name, entry := range s.index() {
		index.WriteString(name + " " + entry.Reason + "\n")
	}
	rows := troubleText.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 25 {
		t.Errorf("got %d rows, want those of the page", len(rows))
	}
	for _, row := range rows {
		parts := strings.Split(row[1], "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		if !testkit.Within(startLimit, func() bool {
			return pattern.MatchString(said.String()) || pattern.MatchString(index.String()) || pattern.MatchString(s.log.String())
		}) {
			t.Errorf("no mistake led to %q", row[1])
		}
	}
	if t.Failed() {
		text, _ := json.MarshalIndent([]string{said.String(), index.String()}, "", "  ")
		t.Logf("clients and the index said %s", text)
	}
}
