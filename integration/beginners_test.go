package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestFailedStartNamesEachModel starts a server on a repository with typical beginners' mistakes.
// Tool directories must not count as models. The log must end with one line per failed model, with
// file and line number. With --exit-on-error=false the log must have the same lines.
func TestFailedStartNamesEachModel(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".ipynb_checkpoints/a-checkpoint.ipynb": "{}", "__pycache__/x.cpython-311.pyc": "",
		"notebooks/a.ipynb": "{}",
		"good/config.pbtxt": oneFloat, "good/1/model.py": executing("pass"),
		"broken/config.pbtxt": "backend: \"python\"\ninput { name: \"A\" data_type: TYPE_BYTES dims: [ 1 ] }\n", "broken/1/model.py": executing("pass"),
		"misspelt/config.pbtxt": "backend: \"pyton\"\n", "misspelt/1/model.py": executing("pass"),
		"raises/config.pbtxt": oneFloat, "raises/1/model.py": "\n\nraise ValueError('no')\n",
		"pipeline/config.pbtxt": "platform: \"ensemble\"\ninput { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: \"B\" data_type: TYPE_FP32 dims: [ 1 ] }\n" +
			"ensemble_scheduling { step {\n model_name: \"god\"\n input_map { key: \"A\" value: \"A\" } output_map { key: \"B\" value: \"B\" } } }\n",
		"pipeline/1/x":        "",
		"syntax/config.pbtxt": oneFloat, "syntax/1/model.py": "\ndef f(:\n",
	})
	s := launch(t, testkit.Python(t).Path, repository)
	if status := s.wait(startLimit); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	_, end, _ := strings.Cut(s.log.String(), "error: creating server: Internal - failed to load all models\n")
	wants := []string{
		"not loaded: broken: " + repository + "/broken/config.pbtxt:2:30: invalid value for enum type: TYPE_BYTES; use TYPE_STRING for strings and bytes",
		"not loaded: misspelt: " + repository + "/misspelt/config.pbtxt:1: Invalid argument: unable to find backend library for backend 'pyton', try specifying runtime on the model configuration. Did you mean 'python'?",
		"not loaded: pipeline: " + repository + "/pipeline/config.pbtxt:5: ensemble pipeline contains models that are not available or ambiguous: god",
		"not loaded: raises: " + repository + "/raises/1/model.py:3: Internal: ValueError: no",
		"not loaded: syntax: " + repository + "/syntax/1/model.py:2: Internal: SyntaxError: invalid syntax",
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
	serving := launch(t, testkit.Python(t).Path, repository, "--exit-on-error=false")
	for _, want := range wants {
		if n := serving.printed(want, 1); n != 1 {
			t.Errorf("the log of a server that keeps running says %d times, want once: %s", n, want)
		}
	}
}

// TestModelWithoutTensorsIsWarnedOf loads a model without a config and without
// auto_complete_config. Like Triton, the server loads it but rejects requests with inputs. The log
// must suggest a config.
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

// TestRefusedLoadsNameTheFlag sends loads to a server with a fixed set of models. The client must
// get Triton's error, and the log must name the flag once.
func TestRefusedLoadsNameTheFlag(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": executing("pass")}))
	for range 2 {
		_, body := s.request("POST", "/v2/repository/models/m/load", "")
		if got, want := errorOf(t, body), "explicit model load / unload is not allowed if polling is enabled"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if want := "because --model-control-mode is none: start with --model-control-mode=explicit to allow them"; s.printed(want, 1) != 1 {
		t.Errorf("the log does not say once %q", want)
	}
}

// returning returns a model that responds to each request with the given tensors.
func returning(tensors string) string {
	return "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, requests):\n" +
		"        return [pb_utils.InferenceResponse([" + tensors + "]) for request in requests]\n"
}

// TestOddOutputsAreWarnedOf checks outputs of the wrong type or with an unknown name, from two
// instances each. Clients must get the same as from Triton, with one warning per output in the log.
// With --strict-outputs both must be errors.
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
	s.stop() // flushes the instances' log
	for _, want := range []string{odd + ": clients receive it unchanged", misspelt + ": clients do not get it"} {
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

// TestFilesAreTakenAsTheyAre sends files as request bodies, with their media types, to a model with
// one BYTES input. The input must have the file's length and bytes.
func TestFilesAreTakenAsTheyAre(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"file/config.pbtxt": `backend: "python"
			input { name: "FILE" data_type: TYPE_STRING dims: [ 1 ] }
			output { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] }`,
		"file/1/model.py": returning(`pb_utils.Tensor("SEEN", np.array([str((len(data), data[:2], data[-2:])) for data in ` +
			`[pb_utils.get_input_tensor_by_name(request, "FILE").as_numpy()[0]]], dtype=object))`),
		"number/config.pbtxt": oneFloat, "number/1/model.py": executing("pass"),
	}))
	large := "\xff\xd8" + strings.Repeat("\x00\x80\xff", 100_000) + "\xff\xd9"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(large))
	_ = w.Close()
	const document = `{"inputs":[{"name":"FILE","shape":[1],"datatype":"BYTES","data":["{}"]}]}`
	answer := func(n int, begin, end string) string {
		return fmt.Sprintf(`"data":["(%d, b'%s', b'%s')"]`, n, strings.ReplaceAll(begin, `\`, `\\`), strings.ReplaceAll(end, `\`, `\\`))
	}
	for _, c := range []struct{ name, media, coding, body, want string }{
		{"JPEG", "image/jpeg", "", "\xff\xd8\xff\xd9", answer(4, `\xff\xd8`, `\xff\xd9`)},
		{"large JPEG", "image/jpeg", "", large, answer(300_004, `\xff\xd8`, `\xff\xd9`)},
		{"compressed on its way", "image/jpeg", "gzip", packed.String(), answer(300_004, `\xff\xd8`, `\xff\xd9`)},
		{"samples that begin with a brace", "Audio/L16", "", "{abc", answer(4, `{a`, `bc`)},
		{"bytes", "application/octet-stream", "", "abcd", answer(4, `ab`, `cd`)},
		{"many bytes", "application/octet-stream; x=y", "", large, answer(300_004, `\xff\xd8`, `\xff\xd9`)},
		{"bytes, compressed", "application/octet-stream", "gzip", packed.String(), answer(300_004, `\xff\xd8`, `\xff\xd9`)},
		{"JSON of a client that says it is bytes", "application/octet-stream", "", " \n" + document, answer(2, `{}`, `{}`)},
		{"large JSON of one", "application/octet-stream", "", document + strings.Repeat(" ", 100_000), answer(2, `{}`, `{}`)},
		{"JSON", "application/json", "", document, answer(2, `{}`, `{}`)},
	} {
		header := map[string]string{"Content-Type": c.media}
		if c.coding != "" {
			header["Content-Encoding"] = c.coding
		}
		status, body, err := s.try("POST", "/v2/models/file/infer", header, []byte(c.body))
		if err != nil || status != http.StatusOK || !strings.Contains(body, c.want) {
			t.Errorf("%s: got %d %s, %v, want %s", c.name, status, body, err, c.want)
		}
	}
	// Triton's own format gets a binary reply, and a model with a numeric input rejects files.
	status, body, err := s.try("POST", "/v2/models/file/infer", map[string]string{"Inference-Header-Content-Length": "0", "Content-Type": "image/png"}, []byte("abcd"))
	if err != nil || status != http.StatusOK || !strings.Contains(body, `"binary_data_size":`) {
		t.Errorf("Triton's form: got %d %s, %v, want a binary output", status, body, err)
	}
	_, body, err = s.try("POST", "/v2/models/number/infer", map[string]string{"Content-Type": "image/jpeg"}, []byte("\xff\xd8\xff\xd9"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := errorOf(t, body), "failed to parse the request JSON buffer: Invalid value. at 0; the body is not JSON: "; !strings.HasPrefix(got, want) {
		t.Errorf("a model of numbers: got %q, want %q", got, want)
	}
}
