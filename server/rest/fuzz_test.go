package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// FuzzConnection sends arbitrary bytes to a connection.
func FuzzConnection(f *testing.F) {
	json := oneInput("INT32", "[2]", `"data":[1,2]`)
	for _, seed := range []string{
		liveRequest, liveRequest + liveRequest, "\r\n" + liveRequest + "x",
		Text("POST", "/v2/models/id_int32/infer", json), Text("POST", "/v2/models/id_int32/infer", json, "Expect: 100-continue", "Accept-Encoding: gzip"),
		"POST /v2/models/id_int32/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + inChunks(json, 9) + liveRequest,
		"POST /v2/repository/index HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}" + liveRequest,
		Text("POST", "/v2/logging", `{"log_info":false}`), Text("POST", "/v2/repository/models/m/load", `{"parameters":{"config":"{}","file:x":"eA=="}}`),
		string(binaryRequest("id_uint8", 5000)), Text("GET", "http://a/v2/models/id%5ffp32?x=y", ""), Text("GET", "/v2/models/batch/versions/1/stats", ""),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		ServeBytes(t, rest.Config{MaxInputBytes: 1 << 20, ForwardPattern: "^x"}, input)
	})
}

// FuzzInfer sends arbitrary bodies in all supported forms to the inference endpoint.
func FuzzInfer(f *testing.F) {
	for _, head := range []string{
		oneInput("INT32", "[2]", `"data":[1,2]`), oneInput("FP64", "[2,1]", `"data":[[1.5e3],[NaN]]`), oneInput("BYTES", "[2]", `"data":["a\u00e9","\\"]`),
		oneInput("BOOL", "[0]", `"data":[]`), oneInput("UINT64", "[1]", `"data":[18446744073709551615]`),
		oneInput("UINT8", "[8]", `"parameters":{"binary_data_size":8}`), oneInput("BYTES", "[1]", `"parameters":{"binary_data_size":8}`),
		`{"id":"i","parameters":{"sequence_id":1,"sequence_start":true,"priority":1,"timeout":5,"x":-1.5},"inputs":[{"name":"INPUT0","datatype":"INT8",` +
			`"shape":[8],"parameters":{"binary_data_size":8}},{"name":"INPUT1","datatype":"FP32","shape":[1],"data":[1]}],` +
			`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}},{"name":"OUTPUT1","parameters":{"classification":3}}]}`,
		`{"inputs":[{"name":"INPUT2","datatype":"BYTES","shape":[1],"parameters":{"shared_memory_region":"r"}}],"outputs":[]}`,
		`{"inputs":[],"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"r","binary_data":false}}]}`,
	} {
		for kind := range byte(8) {
			f.Add([]byte(head), "\x04\x00\x00\x00abcd", kind)
		}
	}
	f.Fuzz(func(t *testing.T, head []byte, data string, kind byte) {
		body := string(head) + data
		headers := []string{fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head))}
		if kind&1 != 0 {
			headers = append(headers, "Accept-Encoding: deflate")
		}
		if kind&4 != 0 { // large parts are in blocks
			body += strings.Repeat("\x00", inference.SmallBody)
		}
		model := "/v2/models/multi/infer"
		request := Text("POST", model, body, headers...)
		if kind&2 != 0 {
			request = "POST " + model + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n" + headers[0] + "\r\n\r\n" + inChunks(body, 1+len(body)/3)
		}
		if replies := ServeBytes(t, rest.Config{MaxInputBytes: 1 << 20}, []byte(request+liveRequest)); replies != 2 {
			t.Fatalf("got %d replies, want 2", replies)
		}
	})
}
