package integration

import (
	"net/http"
	"testing"
)

// echoModel returns the parameters of its request, and sets some in its response.
const echoModel = `
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = np.frombuffer(request.parameters().encode(), np.uint8).reshape(1, -1)
            parameters = {"text": "wörd", "number": -7, "yes": True, "no": False}
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT0", text)], parameters=parameters))
        return answers
`

// TestParametersAndHeadersReachModels checks parameters of all types in both directions, and
// forwarded headers, with and without the real client.
func TestParametersAndHeadersReachModels(t *testing.T) {
	for _, python := range oldestAndNewest(t) {
		t.Run(python.String(), func(t *testing.T) {
			s := start(t, python.Path, writeFiles(t, map[string]string{"echo/config.pbtxt": asksConfig, "echo/1/model.py": echoModel}),
				"--http-header-forward-pattern=^x-|^timeout$|^triton", "--grpc-header-forward-pattern=^x-")
			s.runClient("parameters.py")

			const input = `"inputs":[{"name":"IN0","datatype":"UINT8","shape":[1,1],"data":[1]}]`
			for _, tt := range []struct {
				parameters string
				header     map[string]string
				want       string // the parameters that the model receives, or the error
			}{
				{``, nil, `{}`},
				{`"d":2.0,"p":0.1,"third":0.3333333333333333,"n":-0.0,"over":9223372036854775808`, nil,
					`{"d":2.0,"p":0.1,"third":0.3333333333333333,"n":-0.0,"over":9223372036854776000.0}`},
				{`"z":1,"a":"2","":true`, nil, `{"z":1,"a":"2","":true}`},
				{`"timeout":5000000,"priority":1,"binary_data_output":false,"sequence_id":7,"sequence_start":true,"headers":"h"`, nil, `{"headers":"h"}`},
				{`"X-A":"json"`, map[string]string{"X-A": "header"}, `{"X-A":"json","X-A":"header"}`},
				{``, map[string]string{"Timeout": "7"}, `{"Timeout":"7"}`}, // only the exact spelling is reserved
				{``, map[string]string{"Xy": "7"}, `{}`},
				{`"a":[1]`, nil, "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'."},
				{`"a":null`, nil, "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'."},
				{`"triton_x":1`, nil, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."},
			} {
				status, reply, err := s.try("POST", "/v2/models/echo/infer", tt.header, []byte(`{`+input+`,"parameters":{`+tt.parameters+`}}`))
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if status == http.StatusOK {
					got = string(outputBytes(t, reply))
				} else {
					got = errorOf(t, reply)
				}
				if got != tt.want {
					t.Errorf("%s %v:\n got %s\nwant %s", tt.parameters, tt.header, got, tt.want)
				}
			}
		})
	}
}
