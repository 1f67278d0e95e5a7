package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// languageModel is the model.py of a backend with vLLM's inputs and outputs. The prompt selects its
// action: "echo" returns the inputs, "count N" sends N words, "fail N" sends N words and then an
// error, "forever PATH" sends until it is cancelled and writes its progress to PATH.
const languageModel = `
import json

import numpy as np
import triton_python_backend_utils as pb_utils

INPUTS = {
    "text_input": "TYPE_STRING",
    "stream": "TYPE_BOOL",
    "sampling_parameters": "TYPE_STRING",
    "exclude_input_in_output": "TYPE_BOOL",
    "return_logprobs": "TYPE_BOOL",
    "return_num_input_tokens": "TYPE_BOOL",
    "return_num_output_tokens": "TYPE_BOOL",
    "embedding_request": "TYPE_STRING",
}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        for name, kind in INPUTS.items():
            config.add_input({"name": name, "data_type": kind, "dims": [1], "optional": True})
        config.add_output({"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_output({"name": "logprobs", "data_type": "TYPE_STRING", "dims": [-1]})
        config.add_output({"name": "num_input_tokens", "data_type": "TYPE_UINT32", "dims": [1]})
        config.add_output({"name": "num_output_tokens", "data_type": "TYPE_UINT32", "dims": [1]})
        return config

    def response(self, text, tokens, probable=False):
        known = "null"
        if probable:
            known = json.dumps([{"1": {"logprob": -0.5, "rank": 1, "decoded_token": text}}])
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("logprobs", np.array([known.encode()], dtype=np.object_)),
                pb_utils.Tensor("text_output", np.array([text.encode()], dtype=np.object_)),
                pb_utils.Tensor("num_input_tokens", np.array([5], dtype=np.uint32)),
                pb_utils.Tensor("num_output_tokens", np.array([tokens], dtype=np.uint32)),
            ]
        )

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                self.serve(request, sender)
            except Exception as e:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e))))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def serve(self, request, sender):
        inputs = {}
        for t in request.inputs():
            value = t.as_numpy().ravel()[0]
            inputs[t.name()] = value.decode() if isinstance(value, bytes) else bool(value)
            assert t.as_numpy().shape == (1,), t.as_numpy().shape
        if "embedding_request" in inputs:
            if "tokens" in inputs["embedding_request"]:
                raise ValueError(inputs["embedding_request"])
            sender.send(self.response("[0.5, -1, 2e-05]", 0))
            return
        prompt = inputs["text_input"]
        word, _, rest = prompt.partition(" ")
        if word == "forever":
            with open(rest, "w") as f:
                sent = 0
                while not request.is_cancelled():
                    sender.send(self.response("x" * 65536, 1))
                    sent += 1
                    f.seek(0)
                    f.write("%d\n" % sent)
                    f.flush()
                f.seek(0)
                f.write("cancelled\n")
            return
        pieces = [json.dumps(inputs, sort_keys=True)]
        if word in ("count", "fail"):
            pieces = ["%d " % i for i in range(int(rest))]
        if inputs["stream"]:
            for piece in pieces:
                sender.send(self.response(piece, 1, inputs.get("return_logprobs")))
        elif word != "fail":
            sender.send(self.response("".join(pieces), len(pieces), inputs.get("return_logprobs")))
        if word == "fail":
            raise ValueError("no more \u00fc")
`

// batchedModel resembles a TensorRT-LLM model. It returns its inputs.
const batchedModel = `
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            seen = {}
            for t in request.inputs():
                array = t.as_numpy()
                values = [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()]
                seen[t.name()] = [str(array.dtype), list(array.shape), values]
            text = json.dumps(seen, sort_keys=True).encode()
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([[text]], dtype=np.object_))])
            )
        return responses
`

// languageModels returns a repository and a backend directory for one of its models.
func languageModels(t *testing.T) (repository, backends string) {
	t.Helper()
	repository = writeFiles(t, map[string]string{
		"llm/config.pbtxt":    "backend: \"vllm\"\ninstance_group [ { count: 4 kind: KIND_CPU } ]\n",
		"llm/1/model.json":    "{}",
		"tensorrt/1/model.py": batchedModel,
		"tensorrt/config.pbtxt": `
backend: "python"
max_batch_size: 8
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "top_p" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "frequency_penalty" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "presence_penalty" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true },
  { name: "exclude_input_in_output" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "return_num_input_tokens" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "return_num_output_tokens" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
`,
		"plain/1/model.py": strings.ReplaceAll(identityModel, `t.name().replace("INPUT", "OUTPUT")`, `"OUT"`),
		"plain/config.pbtxt": `
backend: "python"
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
`,
	})
	return repository, writeFiles(t, map[string]string{"vllm/model.py": languageModel})
}

// startOpenAI starts a server with the language models and returns the URL of the OpenAI endpoint.
func startOpenAI(t *testing.T, flags ...string) (s *runningServer, url string) {
	t.Helper()
	repository, backends := languageModels(t)
	port := testkit.Port(t)
	s = start(t, testkit.Python(t).Path, repository, append([]string{"--backend-directory=" + backends, fmt.Sprintf("--openai-port=%d", port)}, flags...)...)
	return s, fmt.Sprintf("http://127.0.0.1:%d/v1", port)
}

// TestOpenAIClientIsServed checks models, completions, streams and embeddings with the openai
// package, and its exceptions for rejected requests.
func TestOpenAIClientIsServed(t *testing.T) {
	s, url := startOpenAI(t, "--openai-default-max-tokens=21")
	s.runClient("openai_client.py", url)
}

// chatTokenizer is a tokenizer config. Its template uses the constructs of real models' templates.
const chatTokenizer = `{
  "bos_token": {"__type": "AddedToken", "content": "<s>"},
  "eos_token": "</s>",
  "chat_template": "{{- bos_token }}{% if tools %}\n<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}\n{% for m in messages %}\n` +
	`  {%- if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('no role ' + m.role) }}{% endif %}\n` +
	`<|{{ m.role }}|>{% if m.content is string %}{{ m.content | trim }}{% elif m.content %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endif %}\n` +
	`{%- for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}{{ eos_token }}\n` +
	`{% endfor %}\n{% if add_generation_prompt %}<|assistant|>{% endif %}"
}`

// TestOpenAIClientChats checks the prompts that the tokenizer's template makes of chat messages.
func TestOpenAIClientChats(t *testing.T) {
	tokenizer := writeFiles(t, map[string]string{"tokenizer_config.json": chatTokenizer})
	s, url := startOpenAI(t, "--openai-tokenizer="+tokenizer)
	s.runClient("openai_chats.py", url)
}

// TestUnreadCompletionHoldsTheModelUp checks that a model with a client that does not read its
// stream waits, and that its request is cancelled when the client disconnects.
func TestUnreadCompletionHoldsTheModelUp(t *testing.T) {
	s, url := startOpenAI(t)
	told := filepath.Join(t.TempDir(), "told")
	reply, err := http.Post(url+"/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"llm","stream":true,"prompt":"forever %s"}`, told)))
	if err != nil {
		t.Fatal(err)
	}
	content := func() string {
		b, err := os.ReadFile(told)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s.until("held up", func() bool {
		before := content()
		for range 100 {
			if status, _ := s.request(http.MethodPost, "/v2/models/plain/generate", `{"N":3}`); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		return content() == before
	})
	_ = reply.Body.Close()
	s.until("cancelled", func() bool { return strings.HasPrefix(content(), "cancelled\n") })
}

// TestOpenAITensorsAndRestrictions checks --openai-tensor, which renames tensors, and
// --openai-restricted-api, which restricts endpoints to requests with a header.
func TestOpenAITensorsAndRestrictions(t *testing.T) {
	repository := writeFiles(t, map[string]string{
		"named/1/model.py": strings.ReplaceAll(identityModel, `t.name().replace("INPUT", "OUTPUT")`, `"ANSWER"`),
		"named/config.pbtxt": `
backend: "python"
input [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "ANSWER" data_type: TYPE_STRING dims: [ 1 ] } ]
`,
	})
	port := testkit.Port(t)
	s := start(t, testkit.Python(t).Path, repository, fmt.Sprintf("--openai-port=%d", port), "--openai-tensor=text_input=PROMPT",
		"--openai-tensor=text_output=ANSWER", "--openai-restricted-api=inference,metrics:key=secret")
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	ask := func(method, path, body, key string) string {
		r, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Key", key)
		}
		reply, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		b := new(strings.Builder)
		if _, err := fmt.Fprintf(b, "%d ", reply.StatusCode); err != nil {
			t.Fatal(err)
		}
		if err := reply.Write(b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const body = `{"model":"named","prompt":"as it is"}`
	for _, tt := range []struct{ method, path, body, key, want string }{
		{"POST", "/v1/completions", body, "", `401 |"code":"invalid_auth"`},
		{"POST", "/v1/completions", body, "wrong", `401 |expecting header 'key' with valid value`},
		{"POST", "/v1/completions", body, "secret", `200 |"text":"as it is"`},
		{"POST", "/v1/completions", `{"model":"named","prompt":"as it is","seed":3}`, "secret", `400 |has no input 'seed' for seed`},
		{"GET", "/metrics", "", "", `401 |invalid_auth`},
		{"GET", "/metrics", "", "secret", `200 |nv_inference_request_success`},
		{"GET", "/health/ready", "", "", `200 |`},
		{"GET", "/v1/models/named", "", "", `200 |"id":"named"`},
		{"POST", "/v1/models/named/unload", "", "", `400 |Model load/unload requires --model-control-mode=explicit`},
		{"DELETE", "/v1/models", "", "", `405 |Allow: GET`},
		{"GET", "/v1/models/", "", "", `200 |"object":"list"`}, // through the redirect
		{"GET", "/v1/other", "", "", `404 |{"detail":"Not Found"`},
	} {
		got := ask(tt.method, tt.path, tt.body, tt.key)
		status, part, _ := strings.Cut(tt.want, "|")
		if !strings.HasPrefix(got, status) || !strings.Contains(got, part) {
			t.Errorf("%s %s %s: got %s, want %s", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
	if !s.prints("Started OpenAI HTTPService at") {
		t.Error("the log does not say where the endpoint listens")
	}
}

// TestOpenAILoadsModelsInExplicitMode checks loads and unloads of models through the OpenAI
// endpoint.
func TestOpenAILoadsModelsInExplicitMode(t *testing.T) {
	s, url := startOpenAI(t, "--model-control-mode=explicit", "--load-model=plain")
	post := func(path, want string, header ...string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		reply, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		b := new(strings.Builder)
		if err := reply.Write(b); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(reply.StatusCode) + " " + b.String(); !strings.HasPrefix(got, want[:4]) || !strings.Contains(got, want[4:]) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	post("/models/plain/load", `400 Model 'plain' is already loaded`)
	post("/models/tensorrt/load", `200 {"id":"tensorrt","created":`)
	post("/models/tensorrt/unload", `403 pages of other sites may not change anything here`, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example")
	post("/models/none/load", `403 pages of other sites`, "Sec-Fetch-Site: cross-site")
	post("/models/none/load", `500 Failed to load model 'none': `)
	post("/models/tensorrt/unload", `200 {"status":"success","model":"tensorrt"}`)
	s.until("unloaded", func() bool {
		status, _ := s.request(http.MethodGet, "/v2/models/tensorrt/ready", "")
		return status != http.StatusOK
	})
	post("/models/tensorrt/unload", `400 Unknown model: tensorrt`)
}
