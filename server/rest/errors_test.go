package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestInferErrorsReadAsClientsExpect checks the texts, statuses and content types of errors.
func TestInferErrorsReadAsClientsExpect(t *testing.T) {
	s := StartHTTP(t, rest.Config{MaxInputBytes: 4096}, nil)
	const (
		plain  = "400 text/plain "
		bad    = "400 application/json "
		broken = "500 application/json "
	)
	in := func(members string) string { return `{"inputs":[{` + members + `}]}` }
	const good = `"name":"INPUT0","datatype":"INT32","shape":[1]`
	const oneSource = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But "
	for _, tt := range []struct{ body, want string }{
		// The JSON itself.
		{`{`, broken + ErrorBody("failed to parse the request JSON buffer: Missing a name for object member. at 1")},
		{` x`, broken + ErrorBody("failed to parse the request JSON buffer: Invalid value. at 1")},
		{`{}x`, broken + ErrorBody("failed to parse the request JSON buffer: The document root must not be followed by other values. at 2")},
		{strings.Repeat("[", 1001), bad + ErrorBody("JSON nesting depth exceeds maximum allowed limit (100)")},
		{strings.Repeat(" ", 4097), plain + ErrorBody("request JSON size of 4097 bytes exceeds the maximum allowed input size of 4096 bytes. Use --http-max-input-size to increase the limit.")},
		// The request.
		{`[]`, broken + ErrorBody("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'")},
		{`{"inputs":5}`, broken + ErrorBody("Unable to parse 'inputs': attempt to access JSON non-array as array")},
		{`{"id":5,"inputs":5}`, broken + ErrorBody("Unable to parse 'id': attempt to access JSON non-string as string")},
		{`{"parameters":[]}`, broken + ErrorBody("failed to get request params.: attempt to get members for non-object")},
		{`{"parameters":{"sequence_id":-1}}`, broken + ErrorBody("Unable to parse 'sequence_id': attempt to access JSON non-string as string")},
		{`{"parameters":{"sequence_id":"` + strings.Repeat("a", 129) + `"}}`, "501 application/json " + ErrorBody("string correlation ID cannot be longer than 128 characters")},
		{`{"parameters":{"sequence_start":1}}`, broken + ErrorBody("Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean")},
		{`{"parameters":{"priority":-1}}`, broken + ErrorBody("Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{`{"parameters":{"triton_x":1}}`, bad + ErrorBody("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")},
		{`{"parameters":{"k":null}}`, bad + ErrorBody("parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'.")},
		// An input.
		{`{"inputs":[5]}`, bad + ErrorBody(oneSource+"no field is set")},
		{in(good), bad + ErrorBody(oneSource+"no field is set")},
		{in(good + `,"data":[1],"parameters":{"binary_data_size":4,"shared_memory_region":"r"}`), bad + ErrorBody(oneSource+"set 'data' 'binary_data_size' 'shared_memory_region'")},
		{in(`"data":[1]`), broken + ErrorBody("Unable to parse 'name': attempt to access non-existing object member 'name'")},
		{in(`"name":5,"data":[1]`), broken + ErrorBody("Unable to parse 'name': attempt to access JSON non-string as string")},
		{in(`"name":"a","data":[1]`), broken + ErrorBody("Unable to parse 'datatype': attempt to access non-existing object member 'datatype'")},
		{in(`"name":"a","datatype":"INT32","data":[1]`), broken + ErrorBody("Unable to parse 'shape': attempt to access non-existing object member 'shape'")},
		{in(`"name":"a","datatype":"INT32","shape":[-1],"data":[1]`), broken + ErrorBody("Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{in(`"name":"a","datatype":"INT32","shape":[18446744073709551615,2],"data":[1]`), bad + ErrorBody("invalid shape for input 'a': shape [-1,2] contains one or more invalid dimensions")},
		{in(`"name":"a","datatype":"INT32","shape":[4294967296,4294967296],"data":[1]`), bad + ErrorBody("invalid shape for input 'a': shape [4294967296,4294967296] causes total element count to exceed maximum size of 9223372036854775807")},
		{in(`"name":"a","datatype":"INT32","shape":[4611686018427387904],"data":[1]`), bad + ErrorBody("byte size overflow for input 'a': element count (4611686018427387904) * data type size (4) exceeds maximum allowed size (9223372036854775807)")},
		{in(`"name":"a","datatype":"INT32","shape":[1025],"data":[1]`), bad + ErrorBody("JSON input 'a' has a byte_size (4100 bytes) that exceeds the maximum allowed value of 4096 bytes. Use --http-max-input-size to increase the limit.")},
		{in(good + `,"data":[1]},{` + good + `,"data":[1]`), bad + ErrorBody("[request id: <id_unknown>] input 'INPUT0' already exists in request")},
		{`{"id":"x",` + in(good + `,"data":[1]},{` + good + `,"data":[1]`)[1:], bad + ErrorBody("[request id: x] input 'INPUT0' already exists in request")},
		{in(good + `,"data":5`), broken + ErrorBody("Unable to parse 'data': attempt to access JSON non-array as array")},
		{in(good + `,"data":[1,2]`), broken + ErrorBody("Unable to parse 'data': Shape does not match true shape of 'data' field")},
		{in(good + `,"data":[]`), broken + ErrorBody("Failed to parse 'data' field: shape does not match true shape")},
		{in(good + `,"data":[1.0]`), broken + ErrorBody("Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer")},
		{in(good + `,"data":` + strings.Repeat("[", 101) + "1" + strings.Repeat("]", 101)), bad + ErrorBody("JSON nesting depth exceeds maximum allowed limit (100)")},
		{in(`"name":"a","datatype":"BOOL","shape":[1],"data":[1]`), broken + ErrorBody("Unable to parse 'data': attempt to access JSON non-boolean as boolean")},
		{in(`"name":"a","datatype":"UINT8","shape":[1],"data":[-1]`), broken + ErrorBody("Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{in(`"name":"a","datatype":"FP32","shape":[1],"data":["1"]`), broken + ErrorBody("Unable to parse 'data': attempt to access JSON non-number as double")},
		{in(`"name":"a","datatype":"BYTES","shape":[1],"data":[1]`), broken + ErrorBody("Unable to parse JSON bytes array: attempt to access JSON non-string as string")},
		{in(`"name":"a","datatype":"FP16","shape":[1],"data":[1]`), bad + ErrorBody("receiving FP16 data via JSON is not supported. Please use the binary data format for input a")},
		{in(`"name":"a","datatype":"BF16","shape":[1],"data":[1]`), bad + ErrorBody("receiving BF16 data via JSON is not supported. Please use the binary data format for input a")},
		{in(`"name":"a","datatype":"int32","shape":[1],"data":[1]`), bad + ErrorBody("invalid datatype for input a")},
		{in(good + `,"parameters":{"shared_memory_region":"r"}`), "404 application/json " + ErrorBody("Unable to find shared memory region: 'r'")},
		// Outputs.
		{`{"inputs":[],"outputs":5}`, broken + ErrorBody("Unable to parse 'outputs': attempt to access JSON non-array as array")},
		{`{"inputs":[],"outputs":[{"name":"O"},{"name":"O"}]}`, bad + ErrorBody("[request id: <id_unknown>] output 'O' already exists in request")},
		{`{"inputs":[],"outputs":[{"parameters":{"shared_memory_region":"r","classification":0}}]}`, bad + ErrorBody("Output can't set both 'shared_memory_region' and 'classification'")},
		{`{"inputs":[],"outputs":[{"parameters":{"shared_memory_region":"r","binary_data":true}}]}`, bad + ErrorBody("Output can't set both 'shared_memory_region' and 'binary_data'")},
		{`{"inputs":[],"outputs":[{"name":"O","parameters":{"shared_memory_region":"r","binary_data":false}}]}`, "404 application/json " + ErrorBody("Unable to find shared memory region: 'r'")},
		{`{"inputs":[],"outputs":[{"name":"O","parameters":{"classification":-1}}]}`, broken + ErrorBody("Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{`{"inputs":[],"outputs":[{"name":"X"}]}`, bad + ErrorBody("unexpected inference output 'X' for model 'id_int32'")},
	} {
		if got := s.Infer(t, "id_int32", tt.body, "").String(); got != tt.want {
			t.Errorf("%.200s:\n got %s\nwant %s", tt.body, got, tt.want)
		}
	}
}

func TestHeaderLengthDividesTheBody(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	ok := "200 application/json " + answerTo("id_int32", "INT32", "[2]", `"data":[1,2]`)
	json := oneInput("INT32", "[2]", `"data":[1,2]`)
	binary := oneInput("INT32", "[2]", `"parameters":{"binary_data_size":8}`)
	n := len(json)
	outOfRange := func(n int, text string) string {
		return "400 text/plain " + ErrorBody(fmt.Sprintf("inference header size should be in range (0, %d), got: %s", n, text))
	}
	for _, tt := range []struct{ name, length, body, want string }{
		{"exact", fmt.Sprint(n), json, ok},
		{"as C's stoi reads it", fmt.Sprintf("+%dx", n), json, ok},
		{"not a number", "x", json, "400 text/plain " + ErrorBody("Unable to parse Inference-Header-Content-Length, got: x")},
		{"beyond 32 bits", "2147483648", json, "400 text/plain " + ErrorBody("Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 2147483648")},
		{"negative", "-1", json, outOfRange(n, "-1")},
		{"too long", fmt.Sprint(n + 1), json, outOfRange(n, fmt.Sprint(n+1))},
		{"bytes left over", fmt.Sprint(n), json + "z", "400 application/json " + ErrorBody("unexpected additional input data for model 'id_int32'")},
		{"binary", fmt.Sprint(len(binary)), binary + inputBytes, ok},
		{"blob runs out", fmt.Sprint(len(binary)), binary + inputBytes[:5], "400 application/json " +
			ErrorBody("unexpected size for input 'INPUT0', expecting 3 additional bytes for model 'id_int32'")},
		{"blob runs out of a large body", fmt.Sprint(len(binary) + 3), strings.Replace(binary, `size":8`, `size":9000`, 1) + strings.Repeat("x", 8500),
			"400 application/json " + ErrorBody("unexpected size for input 'INPUT0', expecting 500 additional bytes for model 'id_int32'")},
		{"bytes left over in a large body", fmt.Sprint(len(binary)), binary + inputBytes + strings.Repeat("x", 9000), "400 application/json " +
			ErrorBody("unexpected additional input data for model 'id_int32'")},
		{"huge blob", fmt.Sprint(len(binary) + 19), strings.Replace(binary, `size":8`, `size":18446744073709551615`, 1) + inputBytes, "400 application/json " +
			ErrorBody("unexpected size for input 'INPUT0', expecting 18446744073709551607 additional bytes for model 'id_int32'")},
	} {
		for _, chunked := range []bool{false, true} {
			c := s.Connect(t)
			if chunked {
				c.Send("POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + inference.HeaderLengthName + ": " + tt.length + "\r\n\r\n" + inChunks(tt.body, 7))
			} else {
				c.Send(Text("POST", "/v2/models/id_int32/infer", tt.body, inference.HeaderLengthName+": "+tt.length))
			}
			if got := c.Receive("POST").String(); got != tt.want && !(chunked && tt.name == "negative") {
				t.Errorf("%s, chunked %v:\n got %s\nwant %s", tt.name, chunked, got, tt.want)
			}
			_ = c.Close()
		}
	}
}

// inChunks splits a body into chunks of n bytes.
func inChunks(body string, n int) string {
	var b strings.Builder
	for from := 0; from < len(body); from += n {
		part := body[from:min(len(body), from+n)]
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	return b.String() + "0\r\n\r\n"
}

func TestInferWithoutMemoryIsRefused(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	free := servertest.Leave(s.Blocks.Account, budget.Bodies, 1000)
	head := oneInput("UINT8", "[2000]", `"parameters":{"binary_data_size":2000}`)
	got := s.Infer(t, "id_uint8", head, strings.Repeat("x", 2000))
	if got.Status != 503 || !strings.Contains(got.Body, "bytes for requests are in use") {
		t.Errorf("over the limit: got %s, want 503", got)
	}
	if got := s.Infer(t, "id_uint8", oneInput("UINT8", "[1]", `"data":[1]`), ""); got.Status != 200 {
		t.Errorf("a small request: got %s, want 200", got)
	}
	free()

	s.Blocks.Fail = infer.Errorf(infer.Unavailable, "the memory for requests is used up")
	head = oneInput("UINT8", "[9000]", `"parameters":{"binary_data_size":9000}`)
	if got, want := s.Infer(t, "id_uint8", head, strings.Repeat("x", 9000)).String(), "503 application/json "+ErrorBody(s.Blocks.Fail.Error()); got != want {
		t.Errorf("no block: got %s, want %s", got, want)
	}
}

// TestReplyWithoutMemoryIsAnError checks that a JSON reply larger than the available memory becomes
// a 503.
func TestReplyWithoutMemoryIsAnError(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	defer servertest.Leave(s.Blocks.Account, budget.JSON, 100_000)()
	head := oneInput("UINT8", "[60000]", `"parameters":{"binary_data_size":60000}`)
	if got := s.Infer(t, "id_uint8", head, strings.Repeat("x", 60000)); got.Status != 503 {
		t.Errorf("got %.200s, want 503", got)
	}
}
