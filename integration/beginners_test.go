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

// returning is a model that answers each request with these tensors.
func returning(tensors string) string {
	return "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n" +
		"        return [pb_utils.InferenceResponse([" + tensors + "]) for request in requests]\n"
}

// TestOddOutputsAreWarnedOf has two instances of a model send an output that is not configured, and
// one of another type: clients get what they get from Triton, and the log has one warning for each
// output. With --strict-outputs both are errors.
func TestOddOutputsAreWarnedOf(t *testing.T) {
	const config = `
		backend: "python"
		input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
		output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
		instance_group { count: 2 kind: KIND_CPU }
		`
	repository := writeFiles(t, map[string]string{
		"odd/config.pbtxt": config, "odd/1/model.py": returning(`pb_utils.Tensor("OUT", np.ones(2))`),
		"misspelt/config.pbtxt": config,
		"misspelt/1/model.py":   returning(`pb_utils.Tensor("OTU", np.ones(1, np.float32))`),
	})
	const request = `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`
	const (
		odd      = "output 'OUT' of model 'odd' is FP64 with shape [2], want FP32 with dims [1], as its configuration says"
		misspelt = "output 'OTU' is not in the configuration of model 'misspelt', whose outputs are 'OUT'"
	)
	s := start(t, testkit.Python(t).Path, repository)
	for range 20 {
		if status, body := s.request("POST", "/v2/models/odd/infer", request); status != 200 || !strings.Contains(body, `"FP64","shape":[2],"data":[1.0,1.0]`) {
			t.Errorf("odd: got %d %s, want the output as it is", status, body)
		}
		if status, body := s.request("POST", "/v2/models/misspelt/infer", request); status != 200 || strings.Contains(body, "OTU") {
			t.Errorf("misspelt: got %d %s, want no output", status, body)
		}
	}
	s.stop() // what an instance logs is written by then
	for _, want := range []string{odd + ": clients get it as it is", misspelt + ": clients do not get it"} {
		if n := strings.Count(s.log.String(), want); n != 1 {
			t.Errorf("the log says %d times, want once: %s", n, want)
		}
	}

	strict := start(t, testkit.Python(t).Path, repository, "--strict-outputs=true")
	for name, want := range map[string]string{"odd": odd, "misspelt": misspelt} {
		status, body := strict.request("POST", "/v2/models/"+name+"/infer", request)
		if got := errorOf(t, body); status != 500 || got != want {
			t.Errorf("%s: got %d %q, want 500 and %q", name, status, got, want)
		}
	}
}
