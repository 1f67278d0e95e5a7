package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
	"github.com/nereid-serving/nereid/server/tracing"
)

// TestTraceSettings compares the replies to a series of requests with those of Triton 2.51.0.
func TestTraceSettings(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	settings := func(rate, count, frequency string) string {
		return `200 {"trace_level":["OFF"],"trace_rate":"` + rate + `","trace_count":"` + count + `","log_frequency":"` + frequency + `","trace_file":"","trace_mode":"triton"}`
	}
	plain := settings("1000", "-1", "0")
	refused := func(status, text string) string { return status + ` {"error":"` + text + `"}` }
	const global, model = "/v2/trace/setting", "/v2/models/id_fp32/trace/setting"
	for _, test := range []struct{ path, body, want string }{
		{global, "-", plain}, {model, "-", plain}, {global, "{}", plain}, {global, "[]", plain}, {global, "5", plain},
		{global, "", refused("500", "failed to parse the request JSON buffer: The document is empty. at 0")},
		{global, "{", refused("500", "failed to parse the request JSON buffer: Missing a name for object member. at 1")},
		{global, `{"trace_file":null}`, refused("501", "trace file location can not be updated through network protocol")},
		{global, `{"trace_level":"OFF"}`, refused("500", "attempt to access JSON non-array as array")},
		{global, `{"trace_level":["X"]}`, plain}, {global, `{"trace_level":[]}`, plain}, {global, `{"trace_level":["timestamps"]}`, plain},
		{global, `{"trace_level":["TIMESTAMPS","OFF"]}`, refused("400", "Expect only one trace level 'OFF' is specified")},
		{global, `{"trace_level":[1]}`, refused("500", "attempt to access JSON non-string as string")},
		{global, `{"trace_level":["TENSORS"]}`, refused("400", "Attempting to set invalid trace setting :trace file name is not given")},
		{global, `{"trace_level":null}`, plain},
		{global, `{"trace_rate":5}`, refused("500", "attempt to access JSON non-string as string")},
		{global, `{"trace_rate":"-5"}`, settings("4294967291", "-1", "0")},
		{global, `{"trace_rate":"x"}`, refused("400", "Unable to parse 'trace_rate', got: x")},
		{global, `{"trace_rate":"99999999999"}`, refused("400", "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 99999999999")},
		{global, `{"trace_rate":"9","trace_count":"x"}`, refused("400", "Unable to parse 'trace_count', got: x")},
		{global, `{"trace_rate":null}`, plain},
		{global, `{"trace_count":"-2"}`, refused("400", "Unable to parse 'trace_count'. Expecting value >= -1, got:-2")},
		{global, `{"log_frequency":" 5x","trace_mode":"opentelemetry","foo":1}`, settings("1000", "-1", "5")},
		{global, `{"log_frequency":null}`, plain},
		{model, `{"trace_rate":"3"}`, settings("3", "-1", "0")}, {global, `{"trace_rate":"8","trace_count":"4"}`, settings("8", "4", "0")},
		{model, "-", settings("3", "4", "0")}, {model, `{"trace_rate":null}`, settings("8", "4", "0")},
		{"/v2/models/no/trace/setting", "-", refused("400", "Request for unknown model : no")},
		{"/v2/models/no/trace/setting", "{", refused("400", "Request for unknown model : no")},
	} {
		method := http.MethodPost
		if test.body == "-" {
			method = http.MethodGet
		}
		r := s.Do(t, method, test.path, strings.TrimPrefix(test.body, "-"))
		if got := fmt.Sprintf("%d %s", r.Status, r.Body); got != test.want {
			t.Errorf("%s %s %s: got %s, want %s", method, test.path, test.body, got, test.want)
		}
	}
}

// TestTracedRequestsAreStamped checks the timestamps of traced requests with a core that does not
// trace.
func TestTracedRequestsAreStamped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	var clock atomic.Int64
	tracer, err := tracing.New(tracing.Config{
		Level: tracing.Timestamps, Rate: 1, Count: -1, Now: func() int64 { return clock.Add(1) }, Log: zerolog.Nop(),
		Settings: []tracing.Pair{{Key: tracing.SettingFile, Value: path}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := StartHTTP(t, rest.Config{}, nil, func(parts *server.Parts, _ *servertest.Blocks) { parts.Traces = tracer })
	const good = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`
	for _, test := range []struct {
		path, body string
		status     int
	}{{"/v2/models/id_fp32/infer", good, 200}, {"/v2/models/id_fp32/infer", "{", 500}, {"/v2/models/fails/infer", good, 503}, {"/v2/models/no/infer", good, 404}} {
		if r := s.Do(t, "POST", test.path, test.body); r.Status != test.status {
			t.Errorf("%s: got %v, want status %d", test.path, r, test.status)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	var entries []struct {
		ID         int
		Timestamps []struct{ Name string }
	}
	if err == nil {
		err = json.Unmarshal(content, &entries)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]string{}
	for _, e := range entries {
		got[e.ID] += e.Timestamps[0].Name + " "
	}
	const want = "HTTP_RECV_START HTTP_RECV_END HTTP_SEND_START HTTP_SEND_END "
	if !maps.Equal(got, map[int]string{1: want, 2: want, 3: want}) {
		t.Errorf("the file has %v, want %s of each of three requests", got, want)
	}
}
