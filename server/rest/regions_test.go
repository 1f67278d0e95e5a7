package rest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/servertest"
)

// withRegions lets clients register shared memory, and tells where its file lies.
func withRegions(t testing.TB, path *string) func(*server.Parts, *servertest.Blocks) {
	return func(parts *server.Parts, blocks *servertest.Blocks) {
		parts.Regions, *path = servertest.Regions(t, blocks)
	}
}

// TestRegionEndpointsAnswerByTheTable registers, shows and unregisters regions of both kinds.
func TestRegionEndpointsAnswerByTheTable(t *testing.T) {
	var path string
	s := startHTTP(t, Config{}, nil, withRegions(t, &path))
	handle := base64.StdEncoding.EncodeToString(make([]byte, 64))
	const accessor = "attempt to access JSON non-"
	for _, tt := range []struct{ request, body, want string }{
		{"POST /v2/systemsharedmemory/register", "{}", "400 application/json " + errorBody("'region name' is necessary to register system shared memory region")},
		{"POST /v2/cudasharedmemory/register", "{}", "400 application/json " + errorBody("'region name' is necessary to register cuda shared memory region")},
		{"POST /v2/systemsharedmemory/region/r/register", "", "500 application/json " + errorBody("failed to parse the request JSON buffer: The document is empty. at 0")},
		{"POST /v2/systemsharedmemory/region/r/register", "[]", "400 application/json " + errorBody("Shared memory register request has no 'key' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"byte_size":"a"}`, "400 application/json " + errorBody("Shared memory register request has no 'key' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":1}`, "400 application/json " + errorBody("Shared memory register request has no 'byte_size' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":1,"byte_size":1}`, "500 application/json " + errorBody(accessor+"string as string")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":-1}`, "500 application/json " + errorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":1,"offset":null}`, "500 application/json " + errorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/none","byte_size":1}`, "500 application/json " + errorBody("Unable to open shared memory region: '/none'")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":1048577}`, "400 application/json " + errorBody("failed to register shared memory region 'r': invalid args")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":65536}`, "200 application/json "},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":65536}`, "400 application/json " + errorBody("shared memory region 'r' already in manager")},
		{"POST /v2/systemsharedmemory/region/a%20b/register", `{"offset":65536,"byte_size":18446744073709551615,"key":"client"}`, "400 application/json " + errorBody("failed to register shared memory region 'a b': invalid args")},
		{"POST /v2/systemsharedmemory/region/a%20b/register", `{"offset":65536,"byte_size":7,"key":"client"}`, "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", `200 application/json [{"name":"a b","key":"client","offset":65536,"byte_size":7},{"name":"r","key":"/client","offset":0,"byte_size":65536}]`},
		{"GET /v2/systemsharedmemory/region/r/status", "", `200 application/json [{"name":"r","key":"/client","offset":0,"byte_size":65536}]`},
		{"GET /v2/cudasharedmemory/region/r/status", "", "404 application/json " + errorBody("The region named 'r' is registered as system shared memory, not CUDA shared memory")},
		{"POST /v2/cudasharedmemory/region/r/unregister", "", "200 application/json "},
		{"POST /v2/cudasharedmemory/unregister", "", "200 application/json "},
		{"POST /v2/systemsharedmemory/region/none/unregister", "junk", "200 application/json "},
		{"POST /v2/systemsharedmemory/region/r/unregister", "", "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", `200 application/json [{"name":"a b","key":"client","offset":65536,"byte_size":7}]`},
		{"POST /v2/systemsharedmemory/unregister", "{}", "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", "200 application/json []"},

		{"POST /v2/cudasharedmemory/region/c/register", "", "500 application/json " + errorBody("failed to parse the request JSON buffer: The document is empty. at 0")},
		{"POST /v2/cudasharedmemory/region/c/register", "{}", "400 application/json " + errorBody("Shared memory register request has no 'raw_handle' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1}`, "400 application/json " + errorBody("Shared memory register request has no 'device_id' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1,"device_id":0}`, "400 application/json " + errorBody("Shared memory register request has no 'byte_size' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1,"device_id":0,"byte_size":1}`, "500 application/json " + errorBody("attempt to access non-existing object member 'b64'")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":1},"device_id":0,"byte_size":1}`, "500 application/json " + errorBody(accessor+"string as string")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":1}`, "400 application/json " + errorBody("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"!"},"device_id":0,"byte_size":1}`, "400 application/json " + errorBody("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":"0","byte_size":1}`, "500 application/json " + errorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":0,"byte_size":1}`, "400 application/json " + errorBody("failed to register CUDA shared memory region: 'c', GPUs not supported")},
		{"GET /v2/cudasharedmemory/status", "", "200 application/json []"},
	} {
		method, target, _ := strings.Cut(tt.request, " ")
		if got := s.do(t, method, target, tt.body).String(); got != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.request, tt.body, got, tt.want)
		}
	}
	for i := range 5 {
		got := s.do(t, "POST", fmt.Sprintf("/v2/systemsharedmemory/region/%d/register", i), `{"key":"client","byte_size":1}`)
		if want := i < 4; (got.status == 200) != want || !want && got.status != 503 {
			t.Errorf("region %d of at most 4: got %s", i, got)
		}
	}
}
