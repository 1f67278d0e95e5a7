package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// askModel has a model of a seat answer.
func (s *seat) askModel(model string) (status int, body string, err error) {
	response, err := http.Post(s.address("/v2/models/"+model+"/infer"), "application/json",
		strings.NewReader(`{"inputs": [{"name": "X", "shape": [1], "datatype": "INT32", "data": [0]}]}`))
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// modelAnswers waits until a model answers with a number.
func (s *seat) modelAnswers(t *testing.T, model, number string) {
	t.Helper()
	status, body, err := 0, "", error(nil)
	if !testkit.Within(startLimit, func() bool {
		status, body, err = s.askModel(model)
		return err == nil && status == http.StatusOK && strings.Contains(body, `"data":[`+number+`]`)
	}) {
		t.Fatalf("model %s answers with status %d, %q and error %v, want %s", model, status, body, err, number)
	}
}

// TestDevWatchesImportsElsewhere changes code outside of the directories of models: a module that two of them import, one
// that is imported in execute, and modules that are not there when they are imported.
func TestDevWatchesImportsElsewhere(t *testing.T) {
	modules := t.TempDir()
	t.Setenv("PYTHONPATH", modules)
	put := func(name, text string) { save(t, filepath.Join(modules, name), text) }
	put("shared/__init__.py", "from .number import N")
	put("shared/number.py", "N = 1")
	put("later.py", "K = 1")
	imports := func(module, value string) string {
		return strings.Replace(fmt.Sprintf(modelThatAnswers, value), "import numpy", module+"\nimport numpy", 1)
	}
	lazily := func(value string) string { return fmt.Sprintf(modelThatStops, "import later; answer = "+value) }
	s := takeSeat(t, writeFiles(t, map[string]string{
		"both/1/model.py":  strings.Replace(lazily("10 * shared.N + later.K"), "import numpy", "import shared\nimport numpy", 1),
		"one/1/model.py":   imports("import shared", "shared.N"),
		"async/1/model.py": strings.Replace(lazily("later.K"), "def execute", "async def execute", 1),
		"never/1/model.py": imports("import absent", "absent.N"),
	}), "--dev")
	s.Await("✗ never 1", startLimit)
	s.Await("serving 3 models", startLimit)
	s.modelAnswers(t, "both", "11")
	s.modelAnswers(t, "one", "1")
	s.modelAnswers(t, "async", "1")

	put("shared/number.py", "N = 2")
	s.modelAnswers(t, "both", "21")
	s.modelAnswers(t, "one", "2")
	s.Await("model 'one' is loaded anew: "+filepath.Join(modules, "shared", "number.py")+" has changed", startLimit)
	put("later.py", "K = 5")
	s.modelAnswers(t, "both", "25")
	s.modelAnswers(t, "async", "5")

	put("shared/number.py", "N = nothing")
	s.Await("model 'both' serves on as it was before", startLimit)
	s.modelAnswers(t, "both", "25")
	s.modelAnswers(t, "one", "2")
	put("shared/number.py", "N = 3 4")
	s.Await("SyntaxError", startLimit)
	put("shared/number.py", "N = 4")
	s.modelAnswers(t, "both", "45")
	s.modelAnswers(t, "one", "4")

	put("later.py", "from lacking import K") // which loads are not aware of
	var body string
	if !testkit.Within(startLimit, func() bool {
		status := 0
		status, body, _ = s.askModel("both")
		return status == http.StatusInternalServerError
	}) || !strings.Contains(body, "No module named 'lacking'") {
		t.Fatalf("a module that is not there: got %q", body)
	}
	put("lacking.py", "K = 7")
	s.modelAnswers(t, "both", "47")

	put("absent/number.py", "N = 8")
	put("absent/__init__.py", "from .number import N")
	s.modelAnswers(t, "never", "8")
	s.Type("\x03")
	if status := s.Wait(startLimit); status != 0 {
		t.Errorf("got status %d after Ctrl-C, want 0", status)
	}
}
