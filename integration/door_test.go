package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// doorModel runs its input as Python code and returns the code's variable "answer", which is a
// response or a string.
const doorModel = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        scope = {"pb_utils": pb_utils, "np": np, "request": request, "answer": "fine"}
        try:
            exec(request.inputs()[0].as_numpy().tobytes().decode(), scope)
        except Exception as error:
            scope["answer"] = type(error).__name__
        answer = scope["answer"]
        if isinstance(answer, str):
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", np.frombuffer(answer.encode(), np.uint8).reshape(1, -1))])
        return answer
`

// TestDoorOverHTTP sends strings that are not UTF-8 in every string field. Each must be rejected
// with an error that names the field, and no stub may exit.
func TestDoorOverHTTP(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{"door/config.pbtxt": asksConfig, "door/1/model.py": doorModel}),
		"--http-header-forward-pattern=^x-", "--grpc-header-forward-pattern=^x-", "--model-control-mode=explicit", "--load-model=door")
	stubs := slices.Sorted(slices.Values(s.stubs()))
	const inputs = `"inputs":[{"name":"IN0","datatype":"UINT8","shape":[1,4],"data":[112,97,115,115]}]`
	for _, bad := range []struct{ text, quoted string }{{`\udc00`, `"\xed\xb0\x80"`}, {"\xff", `"\xff"`}, {"a\xc3(", `"a\xc3("`}} {
		for _, test := range []struct {
			body   string
			header map[string]string
			want   string // in the text of a 400; "" means no error
		}{
			{`{"id":"%s",` + inputs + `}`, nil, "the request's 'id' is not valid UTF-8: " + bad.quoted},
			{`{"parameters":{"sequence_id":"%s","sequence_start":true},` + inputs + `}`, nil, "parameter 'sequence_id' is not valid UTF-8: " + bad.quoted},
			{`{"parameters":{"k":"%s"},` + inputs + `}`, nil, "parameter 'k' is not valid UTF-8: " + bad.quoted},
			{`{"parameters":{"%s":1},` + inputs + `}`, nil, "the name of parameter " + bad.quoted + " is not valid UTF-8"},
			{`{"outputs":[{"name":"%s"}],` + inputs + `}`, nil, "unexpected inference output '"},
			{`{` + strings.Replace(inputs, "IN0", "%s", 1) + `}`, nil, "unexpected inference input '"},
			{`{` + inputs + `}`, map[string]string{"X-Latin": "caf\xe9"}, `parameter 'X-Latin' is not valid UTF-8: "caf\xe9"`},
			{`{` + inputs + `,"%s":1}`, nil, ""},
		} {
			text := strings.ReplaceAll(test.body, "%s", bad.text)
			status, reply, err := s.try("POST", "/v2/models/door/infer", test.header, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if status != http.StatusOK {
					t.Errorf("%q: got status %d: %s, want 200", text, status, reply)
				}
				continue
			}
			if status != http.StatusBadRequest || !strings.Contains(errorOf(t, reply), test.want) {
				t.Errorf("%q: got status %d: %s, want 400 with %s", text, status, reply, test.want)
			}
		}
	}
	s.runClient("door.py")
	for _, path := range []string{
		"/v2/models/%ff/infer", "/v2/models/door%ed%b0%80/infer", "/v2/models/door/versions/%ff/infer",
	} {
		if status, reply := s.request("POST", path, `{`+inputs+`}`); status < 400 || status >= http.StatusInternalServerError {
			t.Errorf("%s: got status %d: %s, want that of a client's fault", path, status, reply)
		}
	}
	s.request("POST", "/v2/repository/models/%ff/load", "")
	s.request("POST", "/v2/repository/models/%ff/unload", "")
	for _, parameters := range []string{`{"config":"{\"backend\":\"\udc00\"}"}`, "{\"config\":\"\xff\"}", `{"config":"{}","file:1/\udc00.py":""}`} {
		if status, reply := s.request("POST", "/v2/repository/models/door/load", `{"parameters":`+parameters+`}`); status == http.StatusOK {
			t.Errorf("load with %q: got status 200, want an error: %s", parameters, reply)
		}
	}
	s.wantAsked("door", "pass", "fine")
	if now := slices.Sorted(slices.Values(s.stubs())); !slices.Equal(now, stubs) {
		t.Errorf("stubs are %v, want those from the beginning, %v", now, stubs)
	}
}

// TestBadStringsFromModelsEndNoStub uses strings with unpaired surrogates in every call and output
// of a model. The call must raise an exception or the string be escaped, and no stub may exit.
func TestBadStringsFromModelsEndNoStub(t *testing.T) {
	s := start(t, testkit.Python(t).Path, writeFiles(t, map[string]string{
		"door/config.pbtxt": asksConfig, "door/1/model.py": doorModel, "other/config.pbtxt": asksConfig, "other/1/model.py": doorModel,
	}), "--model-control-mode=explicit", "--load-model=*")
	stubs := slices.Sorted(slices.Values(s.stubs()))
	const call = "array = np.frombuffer(b'pass', np.uint8).reshape(1, -1)\n" +
		"fields = dict(model_name='other', requested_output_names=['OUT0'], inputs=[pb_utils.Tensor('IN0', array)])\n" +
		"fields.update(%s)\n" +
		"response = pb_utils.InferenceRequest(**fields).exec()\n" +
		"answer = 'error' if response.has_error() else 'fine'\n"
	for change, want := range map[string]string{
		``:                                  "fine",
		`request_id='\udc00'`:               "TypeError",
		`correlation_id='\udc00'`:           "RuntimeError",
		`model_name='\udc00'`:               "TypeError",
		`requested_output_names=['\udc00']`: "TypeError",
		`parameters={'\udc00': 1}`:          "fine", // JSON escapes it, and readers decode it as U+FFFD
		`parameters={'k': '\udc00'}`:        "fine",
	} {
		text := fmt.Sprintf(call, change)
		if got := s.tell("door", text); got != want {
			t.Errorf("%s: got %s, want %s", change, got, want)
		}
	}
	for _, text := range []string{
		`answer = pb_utils.InferenceResponse(error=pb_utils.TritonError('\udc00'))`,
		`answer = pb_utils.InferenceResponse([pb_utils.Tensor('\udc00', np.zeros((1, 1), np.uint8))])`,
		`answer = pb_utils.InferenceResponse([], parameters={'\udc00': '\udc00'})`,
		`raise ValueError('\udc00')`,
		`pb_utils.Logger.log_error('\udc00')`,
		`pb_utils.MetricFamily(name='\udc00', description='\udc00', kind=pb_utils.MetricFamily.COUNTER)`,
		`pb_utils.load_model('other', {'config': '\udc00'})`,
		`pb_utils.load_model('other', {'file:1/\udc00': b''})`,
		`pb_utils.is_model_ready('\udc00', '\udc00')`,
		`pb_utils.unload_model('\udc00')`,
		`print('\udc00')`,
	} {
		body := fmt.Sprintf(`{"inputs":[{"name":"IN0","datatype":"UINT8","shape":[1,%d],"data":[%s]}]}`,
			len(text), strings.Trim(strings.ReplaceAll(fmt.Sprint([]byte(text)), " ", ","), "[]"))
		if status, reply := s.request("POST", "/v2/models/door/infer", body); strings.Contains(reply, "is not healthy") {
			t.Errorf("%s: got status %d: %s", text, status, reply)
		}
	}
	s.wantAsked("door", "pass", "fine")
	if now := slices.Sorted(slices.Values(s.stubs())); !slices.Equal(now, stubs) {
		t.Errorf("stubs are %v, want those from the beginning, %v", now, stubs)
	}
}
