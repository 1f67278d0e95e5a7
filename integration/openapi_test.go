package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestOpenAPIDocumentIsValid checks the OpenAPI document of models of all kinds with a validator,
// and its examples and some requests against its schemas.
func TestOpenAPIDocumentIsValid(t *testing.T) {
	validator := clientPython(t)
	if err := exec.Command(validator, "-c", "import openapi_spec_validator, jsonschema").Run(); err != nil {
		testkit.Missing(t, "no openapi-spec-validator in .venv: make it with \"make integration\"")
	}
	body := executing("pass")
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"one/config.pbtxt": oneFloat, "one/1/model.py": body,
		"batched/config.pbtxt": `backend: "python" max_batch_size: 4
			input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } input { name: "MAYBE" data_type: TYPE_BOOL dims: [ -1, 2 ] optional: true }
			output { name: "OUT" data_type: TYPE_UINT8 dims: [ 3 ] }`, "batched/1/model.py": body,
		"stream/config.pbtxt": `backend: "python" input { name: "IN" data_type: TYPE_FP16 dims: [ 1000 ] } output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
			model_transaction_policy { decoupled: true }`, "stream/1/model.py": body,
		"bare/1/model.py": body, "odd name é/config.pbtxt": oneFloat, "odd name é/1/model.py": body,
	}))
	status, document := s.request("GET", "/openapi.json", "")
	if status != http.StatusOK {
		t.Fatalf("got %d %s, want the document", status, document)
	}
	path := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(validator, "testdata/openapi.py", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	status, page, err := s.try("GET", "/", map[string]string{"Accept": "text/html"}, nil)
	if err != nil || status != http.StatusOK || !strings.Contains(page, "TEXT BYTES [1], MAYBE BOOL [-1,2] → OUT UINT8 [3]") || !strings.Contains(page, "odd%20name%20%C3%A9") {
		t.Errorf("the page: got %d %s, %v, want the models", status, page, err)
	}
}
