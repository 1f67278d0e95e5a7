package rest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestRegionEndpointsAnswerByTheTable registers, lists and unregisters system and CUDA regions, and
// compares the replies with a table.
func TestRegionEndpointsAnswerByTheTable(t *testing.T) {
	var path string
	s := StartHTTP(t, rest.Config{}, nil, servertest.WithRegions(t, &path))
	handle := base64.StdEncoding.EncodeToString(make([]byte, 64))
	const accessor = "attempt to access JSON non-"
	for _, tt := range []struct{ request, body, want string }{
		{"POST /v2/systemsharedmemory/register", "{}", "400 application/json " + ErrorBody("'region name' is necessary to register system shared memory region")},
		{"POST /v2/cudasharedmemory/register", "{}", "400 application/json " + ErrorBody("'region name' is necessary to register cuda shared memory region")},
		{"POST /v2/systemsharedmemory/region/r/register", "", "500 application/json " + ErrorBody("failed to parse the request JSON buffer: The document is empty. at 0")},
		{"POST /v2/systemsharedmemory/region/r/register", "[]", "400 application/json " + ErrorBody("Shared memory register request has no 'key' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"byte_size":"a"}`, "400 application/json " + ErrorBody("Shared memory register request has no 'key' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":1}`, "400 application/json " + ErrorBody("Shared memory register request has no 'byte_size' field")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":1,"byte_size":1}`, "500 application/json " + ErrorBody(accessor+"string as string")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":-1}`, "500 application/json " + ErrorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":1,"offset":null}`, "500 application/json " + ErrorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/none","byte_size":1}`, "500 application/json " + ErrorBody("Unable to open shared memory region: '/none'")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":1048577}`, "400 application/json " + ErrorBody("failed to register shared memory region 'r': invalid args")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":65536}`, "200 application/json "},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/client","byte_size":65536}`, "400 application/json " + ErrorBody("shared memory region 'r' already in manager")},
		{"POST /v2/systemsharedmemory/region/a%20b/register", `{"offset":65536,"byte_size":18446744073709551615,"key":"client"}`, "400 application/json " + ErrorBody("failed to register shared memory region 'a b': invalid args")},
		{"POST /v2/systemsharedmemory/region/a%20b/register", `{"offset":65536,"byte_size":7,"key":"client"}`, "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", `200 application/json [{"name":"a b","key":"client","offset":65536,"byte_size":7},{"name":"r","key":"/client","offset":0,"byte_size":65536}]`},
		{"GET /v2/systemsharedmemory/region/r/status", "", `200 application/json [{"name":"r","key":"/client","offset":0,"byte_size":65536}]`},
		{"GET /v2/cudasharedmemory/region/r/status", "", "404 application/json " + ErrorBody("The region named 'r' is registered as system shared memory, not CUDA shared memory")},
		{"POST /v2/cudasharedmemory/region/r/unregister", "", "200 application/json "},
		{"POST /v2/cudasharedmemory/unregister", "", "200 application/json "},
		{"POST /v2/systemsharedmemory/region/none/unregister", "junk", "200 application/json "},
		{"POST /v2/systemsharedmemory/region/r/unregister", "", "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", `200 application/json [{"name":"a b","key":"client","offset":65536,"byte_size":7}]`},
		{"POST /v2/systemsharedmemory/unregister", "{}", "200 application/json "},
		{"GET /v2/systemsharedmemory/status", "", "200 application/json []"},

		{"POST /v2/cudasharedmemory/region/c/register", "", "500 application/json " + ErrorBody("failed to parse the request JSON buffer: The document is empty. at 0")},
		{"POST /v2/cudasharedmemory/region/c/register", "{}", "400 application/json " + ErrorBody("Shared memory register request has no 'raw_handle' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1}`, "400 application/json " + ErrorBody("Shared memory register request has no 'device_id' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1,"device_id":0}`, "400 application/json " + ErrorBody("Shared memory register request has no 'byte_size' field")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":1,"device_id":0,"byte_size":1}`, "500 application/json " + ErrorBody("attempt to access non-existing object member 'b64'")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":1},"device_id":0,"byte_size":1}`, "500 application/json " + ErrorBody(accessor+"string as string")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":1}`, "400 application/json " + ErrorBody("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"!"},"device_id":0,"byte_size":1}`, "400 application/json " + ErrorBody("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":"0","byte_size":1}`, "500 application/json " + ErrorBody(accessor+"unsigned-integer as unsigned-integer")},
		{"POST /v2/cudasharedmemory/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":0,"byte_size":1}`, "400 application/json " + ErrorBody("failed to register CUDA shared memory region: 'c', GPUs not supported")},
		{"GET /v2/cudasharedmemory/status", "", "200 application/json []"},
	} {
		method, target, _ := strings.Cut(tt.request, " ")
		if got := s.Do(t, method, target, tt.body).String(); got != tt.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.request, tt.body, got, tt.want)
		}
	}
	for i := range 5 {
		got := s.Do(t, "POST", fmt.Sprintf("/v2/systemsharedmemory/region/%d/register", i), `{"key":"client","byte_size":1}`)
		if want := i < 4; (got.Status == 200) != want || !want && got.Status != 503 {
			t.Errorf("region %d of at most 4: got %s", i, got)
		}
	}
}

// TestInferencesUseRegions checks inferences with inputs and outputs in a client's region, and the
// errors for ranges outside the region.
func TestInferencesUseRegions(t *testing.T) {
	var path string
	s := StartHTTP(t, rest.Config{}, nil, servertest.WithRegions(t, &path))
	put := func(at int64, data string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteAt([]byte(data), at)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	lies := func(at int, want string) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil || string(data[at:at+len(want)]) != want {
			t.Errorf("at %d lies %q (%v), want %q", at, data[at:at+len(want)], err, want)
		}
	}
	for _, body := range []string{`{"key":"client","byte_size":65536}`, `{"key":"client","offset":65536,"byte_size":131072}`} {
		name := map[bool]string{true: "far", false: "near"}[strings.Contains(body, "offset")]
		if got := s.Do(t, "POST", "/v2/systemsharedmemory/region/"+name+"/register", body); got.Status != 200 {
			t.Fatal(got)
		}
	}
	put(65536, "\x01\x00\x00\x00\x02\x00\x00\x00")
	put(100, "\x02\x00\x00\x00hi\x00\x00\x00\x00")
	put(131072, strings.Repeat("large   ", 1250))

	const numbers = `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d],"parameters":{%s}}]%s}`
	from := func(n int, parameters string) string { return fmt.Sprintf(numbers, n, parameters, "") }
	to := func(parameters string) string {
		return fmt.Sprintf(`{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[7,8]}],"outputs":[{"name":"OUTPUT0","parameters":{%s}}]}`, parameters)
	}
	const head = `{"model_name":"id_int32","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":`
	for _, tt := range []struct{ name, model, body, want string }{
		{"an input", "id_int32", from(2, `"shared_memory_region":"far","shared_memory_byte_size":8`), "200 application/json " + head + `[2],"data":[1,2]}]}`},
		{"an offset", "id_int32", from(1, `"shared_memory_offset":4,"shared_memory_byte_size":4,"shared_memory_region":"far"`), "200 application/json " + head + `[1],"data":[2]}]}`},
		{"no bytes", "id_int32", from(0, `"shared_memory_region":"far"`), "200 application/json " + head + `[0],"data":[]}]}`},
		{"strings", "id_bytes", `{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[2],"parameters":{"shared_memory_region":"near","shared_memory_offset":100,"shared_memory_byte_size":10}}]}`,
			`200 application/json {"model_name":"id_bytes","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"BYTES","shape":[2],"data":["hi",""]}]}`},
		{"a large one to a large one", "id_uint8", `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[10000],"parameters":{"shared_memory_region":"far","shared_memory_offset":65536,"shared_memory_byte_size":10000}}],` +
			`"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":false,"shared_memory_region":"near","shared_memory_offset":5000,"shared_memory_byte_size":20000}}]}`,
			`200 application/json {"model_name":"id_uint8","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"UINT8","shape":[10000]}]}`},
		{"an output", "id_int32", to(`"shared_memory_region":"near","shared_memory_byte_size":8`), "200 application/json " + head + `[2]}]}`},

		{"an unknown region", "id_int32", from(2, `"shared_memory_region":"none","shared_memory_byte_size":8`), "404 application/json " + ErrorBody("Unable to find shared memory region: 'none'")},
		{"an offset outside", "id_int32", from(2, `"shared_memory_region":"near","shared_memory_offset":65536`), "400 application/json " + ErrorBody("Invalid offset for shared memory region: 'near'")},
		{"an end outside", "id_int32", from(2, `"shared_memory_region":"near","shared_memory_offset":65532,"shared_memory_byte_size":8`), "400 application/json " + ErrorBody("Invalid offset + byte size for shared memory region: 'near'")},
		{"an overflow", "id_int32", from(2, `"shared_memory_region":"near","shared_memory_offset":2,"shared_memory_byte_size":18446744073709551615`),
			"400 application/json " + ErrorBody("Integer overflow detected: byte_size (18446744073709551615) + offset (2) exceeds maximum value (18446744073709551615) for region 'near'")},
		{"a region that is no text", "id_int32", from(2, `"shared_memory_region":1`), "500 application/json " + ErrorBody("Unable to parse 'shared_memory_region': attempt to access JSON non-string as string")},
		{"an offset below 0", "id_int32", from(2, `"shared_memory_region":"near","shared_memory_offset":-1`), "500 application/json " + ErrorBody("Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{"an offset without a region", "id_int32", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[7],"parameters":{"shared_memory_byte_size":"x","shared_memory_offset":-1}}]}`,
			"500 application/json " + ErrorBody("Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{"a size without a region", "id_int32", from(2, `"shared_memory_byte_size":true,"binary_data_size":99`), "500 application/json " + ErrorBody("Unable to parse 'shared_memory_byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{"an output's offset without a region", "id_int32", to(`"shared_memory_offset":1.5,"binary_data":"x"`), "500 application/json " + ErrorBody("Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer")},
		{"a range without a region", "id_int32", to(`"shared_memory_offset":1,"shared_memory_byte_size":1`), "200 application/json " + head + `[2],"data":[7,8]}]}`},
		{"two sources", "id_int32", from(2, `"shared_memory_region":"near","binary_data_size":8`),
			"400 application/json " + ErrorBody("Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'binary_data_size' 'shared_memory_region'")},
		{"an output too large", "id_int32", to(`"shared_memory_region":"near","shared_memory_byte_size":7`),
			"500 text/plain " + ErrorBody("shared memory size specified with the request for output 'OUTPUT0' (7 bytes) should be at least 8 bytes to hold the results")},
		{"an output to an unknown region", "id_int32", to(`"shared_memory_region":"none"`), "404 application/json " + ErrorBody("Unable to find shared memory region: 'none'")},
		{"an unknown output", "id_int32", strings.Replace(to(`"shared_memory_region":"near"`), "OUTPUT0", "NONE", 1), "400 application/json " + ErrorBody("unexpected inference output 'NONE' for model 'id_int32'")},
		{"an output as classes", "id_int32", to(`"shared_memory_region":"near","classification":0`), "400 application/json " + ErrorBody("Output can't set both 'shared_memory_region' and 'classification'")},
		{"an output behind the JSON", "id_int32", to(`"shared_memory_region":"near","binary_data":true`), "400 application/json " + ErrorBody("Output can't set both 'shared_memory_region' and 'binary_data'")},
		{"an output twice", "id_int32", strings.Replace(to(`"shared_memory_region":"near"`), `"outputs":[`, `"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"far"}},`, 1),
			"400 application/json " + ErrorBody("[request id: <id_unknown>] output 'OUTPUT0' already exists in request")},
	} {
		if got := s.Infer(t, tt.model, tt.body, "").String(); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	lies(0, "\x07\x00\x00\x00\x08\x00\x00\x00\x00")
	lies(5000, strings.Repeat("large   ", 1250)+"\x00")

	// One request with a JSON input, a binary input and an input in a region, and with an output in
	// a region.
	got := s.Infer(t, "multi", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"parameters":{"shared_memory_region":"far","shared_memory_byte_size":8}},`+
		`{"name":"INPUT1","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}},{"name":"INPUT3","datatype":"BOOL","shape":[1],"data":[true]}],`+
		`"outputs":[{"name":"OUTPUT3"},{"name":"OUTPUT0","parameters":{"shared_memory_region":"near","shared_memory_offset":8,"shared_memory_byte_size":9}},`+
		`{"name":"OUTPUT1","parameters":{"binary_data":true}}]}`, "\x00\x00\x80\x3f").String()
	if want := `200 application/octet-stream {"model_name":"multi","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[2]},` +
		`{"name":"OUTPUT1","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}},{"name":"OUTPUT3","datatype":"BOOL","shape":[1],"data":[true]}]}` + "\x00\x00\x80\x3f"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	lies(8, "\x01\x00\x00\x00\x02\x00\x00\x00\x00")

	// The client truncates the file.
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	truncated := func(name string) string {
		return ErrorBody("shared memory region '" + name + "' has been truncated by its owner")
	}
	if got, want := s.Infer(t, "id_int32", from(2, `"shared_memory_region":"far","shared_memory_byte_size":8`), "").String(), "400 application/json "+truncated("far"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := s.Infer(t, "id_int32", to(`"shared_memory_region":"far","shared_memory_byte_size":8`), "").String(), "400 text/plain "+truncated("far"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNothingIsWrittenForAClientThatHasLeft checks that no output is written to the region of a
// client that has disconnected, because it may have reused the memory.
func TestNothingIsWrittenForAClientThatHasLeft(t *testing.T) {
	var path string
	core := servertest.NewCore()
	entered, left := make(chan struct{}), make(chan struct{})
	echo := core.Models["id_int32"].Infer
	core.Models["id_int32"].Infer = func(ctx context.Context, r *infer.Request, send infer.Sender) error {
		defer close(left)
		close(entered)
		<-ctx.Done()
		return echo(ctx, r, send)
	}
	s := StartHTTP(t, rest.Config{}, core, servertest.WithRegions(t, &path))
	if got := s.Do(t, "POST", "/v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":65536}`); got.Status != 200 {
		t.Fatal(got)
	}
	c := s.Connect(t)
	c.Send(Text("POST", "/v2/models/id_int32/infer", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[3]}],`+
		`"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}`))
	<-entered
	_ = c.Close()
	<-left
	if err := s.Stop(); err != nil { // after the request has ended
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || data[0] != 0 {
		t.Errorf("the output is in the region (%v)", err)
	}
}

// TestRegionsInUseOutliveTheirNames checks that a request can still use a region that is
// unregistered meanwhile.
func TestRegionsInUseOutliveTheirNames(t *testing.T) {
	var path string
	core := servertest.NewCore()
	entered, leave := make(chan struct{}), make(chan struct{})
	echo := core.Models["id_int32"].Infer
	core.Models["id_int32"].Infer = func(ctx context.Context, r *infer.Request, send infer.Sender) error {
		entered <- struct{}{}
		<-leave
		return echo(ctx, r, send)
	}
	s := StartHTTP(t, rest.Config{}, core, servertest.WithRegions(t, &path))
	if got := s.Do(t, "POST", "/v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":65536}`); got.Status != 200 {
		t.Fatal(got)
	}
	done := make(chan string)
	go func() {
		done <- s.Infer(t, "id_int32", `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[3]}],`+
			`"outputs":[{"name":"OUTPUT0","parameters":{"shared_memory_region":"r","shared_memory_byte_size":4}}]}`, "").String()
	}()
	<-entered
	if got := s.Do(t, "POST", "/v2/systemsharedmemory/unregister", ""); got.Status != 200 {
		t.Error(got)
	}
	close(leave)
	if got := <-done; !strings.HasPrefix(got, "200 ") {
		t.Errorf("got %s, want success", got)
	}
	if data, err := os.ReadFile(path); err != nil || data[0] != 3 {
		t.Errorf("the output is not in the region (%v)", err)
	}
}

// TestOutputsInTheirPlaces checks that an output that the backend has written to the client's
// region is described in the reply but not written again, and that the region is released.
func TestOutputsInTheirPlaces(t *testing.T) {
	var path string
	m := servertest.NewModel("puts", 0, "INPUT0 UINT8 -1", "OUTPUT0 UINT8 -1")
	m.Infer = servertest.PutInPlace(100_000)
	s := StartHTTP(t, rest.Config{}, servertest.NewCore(m), servertest.WithRegions(t, &path))
	for range 2 {
		if got := s.Do(t, "POST", "/v2/systemsharedmemory/region/r/register", `{"key":"client","byte_size":1048576}`); got.Status != 200 {
			t.Fatal(got)
		}
		const body = `{"inputs":[{"name":"INPUT0","datatype":"UINT8","shape":[1],"data":[1]}],"outputs":[{"name":"OUTPUT0","parameters":` +
			`{"shared_memory_region":"r","shared_memory_offset":10,"shared_memory_byte_size":200000}}]}`
		want := `200 application/json {"model_name":"puts","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"UINT8","shape":[100000]}]}`
		if got := s.Infer(t, "puts", body, "").String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		data, err := os.ReadFile(path)
		if err != nil || data[9] != 0 || data[10] != 7 || data[100_009] != 7 || data[100_010] != 0 {
			t.Errorf("the region has other bytes than the backend has put there (%v)", err)
		}
		if got := s.Do(t, "POST", "/v2/systemsharedmemory/region/r/unregister", ""); got.Status != 200 {
			t.Fatal(got)
		}
	}
	// The last request releases the region after its reply.
	Eventually(t, "the region is no longer mapped", func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		return err == nil && !strings.Contains(string(maps), path)
	})
}
