package integration

import (
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestFailedStartNamesEachModel starts a server on the mistakes of a first repository. Folders
// of tools are no models; each model that does not load has a last line, with file and line.
func TestFailedStartNamesEachModel(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".ipynb_checkpoints/a-checkpoint.ipynb": "{}", "__pycache__/x.cpython-311.pyc": "",
		"notebooks/a.ipynb": "{}",
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"broken/config.pbtxt": "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_BYTES dims: [ 1 ] }\n", "broken/1/model.py": executing("pass"),
		"misspelt/config.pbtxt": "backend: \"pyton\"\n", "misspelt/1/model.py": executing("pass"),
		"raises/config.pbtxt": oneFloat, "raises/1/model.py": "\n\nraise ValueError('no')\n",
		"syntax/config.pbtxt": oneFloat, "syntax/1/model.py": "\ndef f(:\n",
	})
	s := launch(t, testkit.Python(t).Path, repository)
	if status := s.wait(startLimit); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	_, end, _ := strings.Cut(s.log.String(), "error: creating server: Internal - failed to load all models\n")
	wants := []string{
		"not loaded: broken: " + repository + "/broken/config.pbtxt:2:30: invalid value for enum type: TYPE_BYTES; TYPE_STRING is the name for texts and bytes",
		"not loaded: misspelt: " + repository + "/misspelt/config.pbtxt: Invalid argument: unable to find backend library for backend 'pyton', try specifying runtime on the model configuration. Did you mean 'python'?",
		"not loaded: raises: " + repository + "/raises/1/model.py:3: Internal: ValueError: no",
		"not loaded: syntax: " + repository + "/syntax/1/model.py:2: Internal: SyntaxError: invalid syntax (model.py, line 2)",
		"not loaded: notebooks: " + repository + "/notebooks/config.pbtxt: Invalid model name: Could not determine backend",
	}
	for _, want := range wants {
		if !strings.Contains("\n"+end, "\n"+want) {
			t.Errorf("the last lines are\n%s\nwant %q", end, want)
		}
	}
	if n := strings.Count(end, "\n"); n != len(wants) {
		t.Errorf("got %d last lines, want %d:\n%s", n, len(wants), end)
	}
}

// TestModelWithoutTensorsIsWarnedOf loads a model without a config and without an
// auto_complete_config: it serves, as in Triton, and refuses each request that has an input.
func TestModelWithoutTensorsIsWarnedOf(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"bare/1/model.py": "import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n" +
			"        return [pb_utils.InferenceResponse([pb_utils.Tensor(\"TWICE\", 2 * pb_utils.get_input_tensor_by_name(r, \"NUMBER\").as_numpy())]) for r in requests]\n",
	}))
	const config = `to the file, with your types and shapes: backend: \"python\" input [ { name: \"NUMBER\" data_type: TYPE_FP32 dims: [ -1 ] } ] output [ { name: \"TWICE\" data_type: TYPE_FP32 dims: [ -1 ] } ]`
	for _, want := range []string{"model 'bare' has no inputs and no outputs", config} {
		if !s.prints(want) {
			t.Errorf("the log does not say %s", want)
		}
	}
}

// TestRefusedLoadsNameTheFlag loads a model of a server whose models cannot be changed. The client
// gets Triton's text; the log says why, once.
func TestRefusedLoadsNameTheFlag(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")}))
	for range 2 {
		_, body := s.request("POST", "/v2/repository/models/m/load", "")
		if got, want := errorOf(t, body), "explicit model load / unload is not allowed if polling is enabled"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if want := "since --model-control-mode is none: start with --model-control-mode=explicit to allow them"; s.printed(want, 1) != 1 {
		t.Errorf("the log does not say once %q", want)
	}
}
