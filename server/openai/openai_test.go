package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/openai"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
	"github.com/nereid-serving/nereid/server/tracing"
)

// textModel returns a model whose inputs have these names and the type BYTES, or the type after a
// colon.
func textModel(name, backend string, run func(ctx context.Context, q *infer.Request, send infer.Sender) error, inputs ...string) *servertest.Model {
	cfg := &kserve.ModelConfig{Name: name, Backend: backend}
	for _, in := range inputs {
		in, kind, typed := strings.Cut(in, ":")
		d := infer.Bytes
		if typed {
			d = infer.ParseDataType(kind)
		}
		cfg.Input = append(cfg.Input, &kserve.ModelInput{Name: in, DataType: kserve.DataType(d), Dims: []int64{1}})
	}
	return &servertest.Model{Info: &models.Info{Name: name, Version: 1, Config: cfg}, Infer: run}
}

func textOf(data []byte) string { return string(data[4:]) }

func bytesTensor(name, text string) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Bytes, Shape: []int64{1}, Data: testkit.TensorData(text)}
}

func numberTensor(name string, n int32) infer.Tensor {
	return infer.Tensor{Name: name, DataType: infer.Int32, Shape: []int64{1}, Data: testkit.TensorData(n)}
}

// says returns the Infer function of a model that sends these texts, with an error for each text
// that begins with "!", and then ends the stream.
func says(texts ...string) func(context.Context, *infer.Request, infer.Sender) error {
	return func(_ context.Context, _ *infer.Request, send infer.Sender) error {
		for _, text := range texts {
			if why, wrong := strings.CutPrefix(text, "!"); wrong {
				send(&infer.Response{Err: infer.Errorf(infer.InvalidArg, "%s", why)})
				continue
			}
			send(&infer.Response{Outputs: []infer.Tensor{bytesTensor("text_output", text), numberTensor("num_input_tokens", 4), numberTensor("num_output_tokens", 2)}})
		}
		send(&infer.Response{Empty: true, Final: true})
		return nil
	}
}

// service is a front end over fakes.
type service struct {
	t      *testing.T
	core   *servertest.Core
	blocks *servertest.Blocks
	url    string
}

// serve runs a front end until the test ends. All memory must then have been released.
func serve(t *testing.T, cfg openai.Config, list ...*servertest.Model) *service {
	t.Helper()
	return serveTraced(t, cfg, nil, list...)
}

// serveTraced is serve with a tracer.
func serveTraced(t *testing.T, cfg openai.Config, traces *tracing.Tracer, list ...*servertest.Model) *service {
	t.Helper()
	core := servertest.NewCore(list...)
	blocks := &servertest.Blocks{Account: budget.New(budget.Config{Limit: 1 << 27})}
	parts := server.Parts{Core: core, Allocate: blocks.Allocate, Memory: blocks.Account, Logging: &servertest.Log[server.LogSettings]{}, Traces: traces}
	cfg.REST.Address = "127.0.0.1"
	h, err := openai.New(cfg, parts, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	_, stop := servertest.Run(t, h)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if lent, charged := blocks.Lent.Load(), blocks.Account.Total(); lent != 0 || charged != 0 {
			t.Errorf("%d blocks are lent and %d bytes are charged afterwards", lent, charged)
		}
	})
	return &service{t, core, blocks, "http://" + h.Addr().String()}
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// changing matches the parts of a reply that differ between equal requests.
var changing = regexp.MustCompile(`"cmpl-[0-9a-f-]{36}"|"created":\d+`)

// post sends a body and returns the status and the reply, without ids and times.
func (s *service) post(path, body string) string {
	s.t.Helper()
	reply, err := client.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	b, err := io.ReadAll(reply.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(reply.StatusCode, " ", changing.ReplaceAllStringFunc(string(b), func(text string) string {
		if strings.HasPrefix(text, `"created"`) {
			return `"created":0`
		}
		return `"ID"`
	}))
}

func TestCompletionsHaveTheFormOfTriton(t *testing.T) {
	s := serve(t, openai.Config{}, textModel("m", "python", says("a\"\u00e9\xff"), "text_input"), textModel("two", "python", says("a", "b"), "text_input"),
		textModel("none", "python", says(), "text_input"), textModel("wrong", "python", says("!a\nb"), "text_input"))
	for _, tt := range []struct{ body, want string }{
		{`{"model":"m","prompt":"p"}`, `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":"a\"` + "\u00e9\ufffd" + `"}],"created":0,` +
			`"model":"m","system_fingerprint":null,"object":"text_completion","usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2}}`},
		{`{"model":"none","prompt":"p"}`, `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":""}],"created":0,` +
			`"model":"none","system_fingerprint":null,"object":"text_completion","usage":null}`},
		{`{"model":"two","prompt":"p"}`, `500 {"detail":"Unexpected number of responses: 3, expected 1 or 2.","error":{"message":` +
			`"Unexpected number of responses: 3, expected 1 or 2.","type":"server_error","param":null,"code":null}}`},
		{`{"model":"wrong","prompt":"p"}`, `500 {"detail":"a\nb","error":{"message":"a\nb","type":"server_error","param":null,"code":null}}`},
	} {
		if got := s.post("/v1/completions", tt.body); got != tt.want {
			t.Errorf("%s: got\n %s, want\n %s", tt.body, got, tt.want)
		}
	}
}

func TestStreamsAreEventsWithAnEnd(t *testing.T) {
	s := serve(t, openai.Config{}, textModel("m", "python", says("a", "b"), "text_input"), textModel("wrong", "python", says("a", "!why"), "text_input"))
	chunk := func(text, reason, model string) string {
		return `data: {"id":"ID","choices":[{"finish_reason":` + reason + `,"index":0,"logprobs":null,"text":"` + text + `"}],"created":0,"model":"` + model +
			`","system_fingerprint":null,"object":"text_completion","usage":null}` + "\n\n"
	}
	want := "200 " + chunk("a", "null", "m") + chunk("b", "null", "m") + chunk("", `"stop"`, "m") + `data: {"id":"ID","choices":[],"created":0,"model":"m",` +
		`"system_fingerprint":null,"object":"text_completion","usage":{"prompt_tokens":4,"total_tokens":8,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n"
	if got := s.post("/v1/completions", `{"model":"m","prompt":"p","stream":true,"stream_options":{"include_usage":true}}`); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	want = "200 " + chunk("a", "null", "wrong") + `data: {"error":{"message":"why","type":"server_error","param":null,"code":null}}` + "\n\n"
	if got := s.post("/v1/completions", `{"model":"wrong","prompt":"p","stream":true}`); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// TestFaultsOfFields checks the errors of invalid fields. Their texts are those of the framework
// that Triton's front end uses.
func TestFaultsOfFields(t *testing.T) {
	s := serve(t, openai.Config{}, textModel("m", "python", says("a"), "text_input", "max_tokens:INT32"))
	const detail = `422 {"detail":[`
	for body, want := range map[string]string{
		`{"model":"m"}`: detail + `{"type":"missing","loc":["body","prompt"],"msg":"Field required","input":{"model":"m"}}],` +
			`"error":{"message":"prompt: Field required","type":"invalid_request_error","param":"prompt","code":"missing"}}`,
		`{"model":"m","prompt":"p","max_tokens":1.5}`: detail + `{"type":"int_from_float","loc":["body","max_tokens"],"msg":` +
			`"Input should be a valid integer, got a number with a fractional part","input":1.5}],`,
		`{"model":"m","prompt":"p","temperature":2.5}`: detail + `{"type":"less_than_equal","loc":["body","temperature"],"msg":` +
			`"Input should be less than or equal to 2","input":2.5,"ctx":{"le":2.0}}],`,
		`{"model":"m","prompt":"p","n":0}`: detail + `{"type":"greater_than_equal","loc":["body","n"],"msg":` +
			`"Input should be greater than or equal to 1","input":0,"ctx":{"ge":1}}],`,
		`{"model":"m","prompt":"p","what":[1]}`:         detail + `{"type":"extra_forbidden","loc":["body","what"],"msg":"Extra inputs are not permitted","input":[1]}],`,
		`{"model":"m","prompt":"p","stream":"perhaps"}`: detail + `{"type":"bool_parsing",`,
		`{"model":7,"prompt":"p"}`:                      detail + `{"type":"string_type","loc":["body","model"],"msg":"Input should be a valid string","input":7}],`,
		`{"model":"m","prompt":"p","stop":["a",1]}`:     detail + `{"type":"string_type","loc":["body","stop","str"]`,
		`[1]`: detail + `{"type":"model_attributes_type","loc":["body"],`,
		``:    detail + `{"type":"missing","loc":["body"],`,
		`{"model":"m","prompt":"p","temperature":NaN}`:        detail + `{"type":"finite_number",`,
		`{"model":"m","prompt":"p","max_tokens":"7"}`:         "200 ",
		`{"model":"m","prompt":"p","stream":"false"}`:         "200 ",
		`{"model":"m","prompt":"p","max_tokens":null}`:        "200 ",
		`{"model":"m","prompt":"p","temperature":0.3}`:        `400 {"detail":"Model 'm' has no input 'temperature' for temperature"`,
		`{"model":"m","prompt":"p","stop":"a"}`:               `400 {"detail":"Model 'm' has no input 'stop_words' for stop"`,
		`{"model":"m","prompt":"p","logprobs":1}`:             `400 {"detail":"logprobs are currently available only for the vLLM backend"`,
		`{"model":"m","prompt":"p","best_of":2}`:              `400 {"detail":"Received best_of=2, but only single choice (best_of=1) is currently supported"`,
		`{"model":"m","prompt":"p","logit_bias":{}}`:          `400 {"detail":"logit bias is not supported"`,
		`{"model":"m","prompt":"p","suffix":"s"}`:             `400 {"detail":"suffix is not currently supported"`,
		`{"model":"m","prompt":[]}`:                           `400 {"detail":"prompt must be non-empty"`,
		`{"model":"m","prompt":"p","max_tokens":10000000000}`: `500 {"detail":"Python integer 10000000000 out of bounds for int32"`,
		`{"model":"id_int32","prompt":"p"}`:                   `400 {"detail":"Model 'id_int32' has no input 'text_input' for a prompt"`,
	} {
		if got := s.post("/v1/completions", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got\n %s, want\n %s", body, got, want)
		}
	}
}

// TestInputsFollowTheModel checks that the inputs of a request have the types and shapes of the
// model's configuration.
func TestInputsFollowTheModel(t *testing.T) {
	m := textModel("m", "python", says("a"), "text_input", "max_tokens:INT64", "seed:UINT64", "temperature:FP64", "stop_words")
	m.Info.Config.Input[4].Dims = []int64{-1}
	vllm := textModel("v", openai.FormatVLLM, says("a"), "text_input", "sampling_parameters", "exclude_input_in_output:BOOL")
	s := serve(t, openai.Config{}, m, vllm)
	if got := s.post("/v1/completions", `{"model":"m","prompt":"p\n","seed":18,"stop":["x","yz"],"temperature":null}`); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	var got []string
	for _, in := range s.core.Last().Inputs {
		got = append(got, fmt.Sprint(in.Name, in.DataType, in.Shape, in.Data))
	}
	want := []string{`text_inputBYTES [1] [2 0 0 0 112 10]`, `max_tokensINT64 [1] [16 0 0 0 0 0 0 0]`, `seedUINT64 [1] [18 0 0 0 0 0 0 0]`,
		`stop_wordsBYTES [2] [1 0 0 0 120 2 0 0 0 121 122]`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.post("/v1/completions", `{"model":"v","prompt":"p","stop":"\u00e9\"","top_p":0.00001,"presence_penalty":null,"echo":true}`); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	inputs := s.core.Last().Inputs
	if want := `{"frequency_penalty": 0, "ignore_eos": false, "n": 1, "stop": "\u00e9\"", "temperature": 1, "top_p": 1e-05, "max_tokens": 16}`; len(inputs) != 3 ||
		textOf(inputs[2].Data) != want || inputs[1].Data[0] != 0 {
		t.Errorf("got %v, want %s", inputs, want)
	}
}

// TestLeavingClientCancelsItsStream checks that a model's request is cancelled when the client of
// its stream disconnects.
func TestLeavingClientCancelsItsStream(t *testing.T) {
	var cancelled atomic.Bool
	s := serve(t, openai.Config{}, textModel("m", "python", func(ctx context.Context, _ *infer.Request, send infer.Sender) error {
		send(&infer.Response{Outputs: []infer.Tensor{bytesTensor("text_output", "a")}})
		<-ctx.Done()
		cancelled.Store(true)
		send(infer.ErrorResponse(infer.Errorf(infer.Cancelled, "cancelled")))
		return nil
	}, "text_input"))
	reply, err := client.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"p","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	testkit.Eventually(t, servertest.Patience, cancelled.Load)
}

// TestLargeBodiesAreRefused checks that bodies that are too large are rejected, whether their
// length is announced or not.
func TestLargeBodiesAreRefused(t *testing.T) {
	s := serve(t, openai.Config{REST: rest.Config{MaxInputBytes: 64}}, textModel("m", "python", says("a"), "text_input"))
	large := `{"model":"m","prompt":"` + strings.Repeat("p", 64) + `"}`
	const want = ` bytes exceeds the maximum allowed input size of 64 bytes. Use --http-max-input-size to increase the limit.","type":"invalid_request_error","code":"content_too_large"}}`
	if got := s.post("/v1/completions", large); got != `413 {"error":{"message":"Request size of 89`+want {
		t.Errorf("got %s", got)
	}
	reply, err := client.Post(s.url+"/v1/completions", "application/json", io.MultiReader(strings.NewReader(large))) // unknown length
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if b, _ := io.ReadAll(reply.Body); string(b) != `{"error":{"message":"Request size of 65`+want {
		t.Errorf("got %s", b)
	}
}

// TestBodiesNestToTheDepthOfAllJSON checks that 100 nested brackets are accepted and 101 are
// rejected, as in all JSON that the server reads.
func TestBodiesNestToTheDepthOfAllJSON(t *testing.T) {
	s := serve(t, openai.Config{}, textModel("m", "python", says("a"), "text_input"))
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
		for depth, want := range map[int]string{
			100: `422 {"detail":[{"type":"missing","loc":["body","model"],`,
			101: `422 {"detail":[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error","input":{},"ctx":{"error":"JSON nesting depth exceeds maximum allowed limit (100)"}`,
		} {
			if got := s.post(path, `{"x":`+strings.Repeat("[", depth-1)+strings.Repeat("]", depth-1)+"}"); !strings.HasPrefix(got, want) {
				t.Errorf("%s at depth %d: got %.300s, want %s", path, depth, got, want)
			}
		}
	}
}

func TestWrongConfigsAreRefused(t *testing.T) {
	for _, cfg := range []openai.Config{
		{Format: "other"}, {Tensors: map[string]string{"other": "x"}},
		{Restricted: []server.Restriction{{Groups: []string{"embedding"}}}},
		{Restricted: []server.Restriction{{Groups: []string{"health"}}, {Groups: []string{"health"}}}},
		{REST: rest.Config{Port: -1}},
	} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

func TestFloatsArePrintedAsInPython(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 1: "1.0", 0.1: "0.1", 1e-5: "1e-05", 1.5e-7: "1.5e-07", 0.0001: "0.0001", -2: "-2.0", 1e16: "1e+16", 123456789: "123456789.0"} {
		if got := openai.PythonFloat(f); got != want {
			t.Errorf("%g: got %s, want %s", f, got, want)
		}
	}
}

// probable is the Infer function of a vLLM model that sends a text in two pieces, with the log
// probabilities of their tokens.
func probable(_ context.Context, q *infer.Request, send infer.Sender) error {
	pieces := []struct{ text, logprobs string }{
		{"\u00e9 b", `[{"7": {"logprob": -0.5, "rank": 2, "decoded_token": "x"}, "8": {"logprob": -0.25, "rank": 1, "decoded_token": "\u00e9"}}, ` +
			`{"9": {"logprob": -1e-3, "rank": 1, "decoded_token": " b"}}]`},
		{"c", `[{"10": {"logprob": -2, "rank": 1, "decoded_token": "c"}}]`},
	}
	if !strings.Contains(textOf(q.Input("sampling_parameters").Data), `"logprobs": `) {
		pieces[0].logprobs = "null"
	}
	if q.Input("stream").Data[0] == 0 {
		pieces = pieces[:1]
	}
	if strings.HasPrefix(textOf(q.Input("text_input").Data), "broken") {
		pieces[0].logprobs = `[{"7":{}}]`
	}
	for _, p := range pieces {
		send(&infer.Response{Outputs: []infer.Tensor{bytesTensor("text_output", p.text), bytesTensor("logprobs", p.logprobs)}})
	}
	send(&infer.Response{Empty: true, Final: true})
	return nil
}

func TestLogprobsHaveTheFormOfTriton(t *testing.T) {
	inputs := []string{"text_input", "stream:BOOL", "sampling_parameters", "return_logprobs:BOOL"}
	tokenizer := filepath.Join(t.TempDir(), "tokenizer_config.json")
	if err := os.WriteFile(tokenizer, []byte(`{"chat_template":"{{ messages[0].content }}"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, openai.Config{Tokenizer: tokenizer}, textModel("m", "vllm", probable, inputs...), textModel("less", "vllm", probable, inputs[:3]...))
	const first = `{"text_offset":[0,1],"token_logprobs":[-0.25,-1e-3],"tokens":["` + "\u00e9" + `"," b"],"top_logprobs":[{"x":-0.5,"` + "\u00e9" + `":-0.25},{" b":-1e-3}]}`
	for _, tt := range []struct{ path, body, want string }{
		{"/v1/completions", `{"model":"m","prompt":"p","logprobs":2}`, `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"logprobs":` + first + `,"text":`},
		{"/v1/completions", `{"model":"m","prompt":"p"}`, `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":`},
		{"/v1/completions", `{"model":"m","prompt":"p","logprobs":0}`, `200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"logprobs":null,"text":`},
		{"/v1/completions", `{"model":"m","prompt":"broken","logprobs":2}`, `500 {"detail":"the model's logprobs cannot be read: a token has no logprob"`},
		{"/v1/completions", `{"model":"less","prompt":"p","logprobs":2}`, `400 {"detail":"Model 'less' has no inputs 'return_logprobs' and 'sampling_parameters' for logprobs"`},
		{"/v1/completions", `{"model":"m","prompt":"p","logprobs":6}`, `422 {"detail":[{"type":"less_than_equal"`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"p"}],"top_logprobs":2}`, "400 {\"detail\":\"`top_logprobs` can only be used when `logprobs` is True\""},
		{
			"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"p"}],"logprobs":true,"top_logprobs":2}`,
			`200 {"id":"ID","choices":[{"finish_reason":"stop","index":0,"message":{"content":"` + "\u00e9" + ` b","tool_calls":null,"role":"assistant","function_call":null},` +
				`"logprobs":{"content":[{"token":"` + "\u00e9" + `","logprob":-0.25,"bytes":[195,169],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]},` +
				`{"token":"` + "\u00e9" + `","logprob":-0.25,"bytes":[195,169]}]},{"token":" b","logprob":-1e-3,"bytes":[32,98],"top_logprobs":[{"token":" b","logprob":-1e-3,"bytes":[32,98]}]}]}}],`,
		},
	} {
		if got := s.post(tt.path, tt.body); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got\n %s, want\n %s", tt.body, got, tt.want)
		}
	}
	got := s.post("/v1/completions", `{"model":"m","prompt":"p","logprobs":1,"stream":true}`)
	second := `{"text_offset":[3],"token_logprobs":[-2],"tokens":["c"],"top_logprobs":[{"c":-2}]}`
	if !strings.Contains(got, `"logprobs":`+first) || !strings.Contains(got, `"logprobs":`+second) || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("got\n%s", got)
	}
}
