package rest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

func TestEndpointsAnswerByTheTable(t *testing.T) {
	core := servertest.NewCore()
	s := StartHTTP(t, rest.Config{ServerName: "s", ServerVersion: "1.2.3"}, core)
	const id = `{"name":"id_fp32","versions":["1"],"platform":"python",` +
		`"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1]}],"outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[-1]}]}`
	const durations = `"inference_stats":{"success":{"count":0,"ns":0},"fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},` +
		`"compute_input":{"count":0,"ns":0},"compute_infer":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0},` +
		`"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"response_stats":{},"batch_stats":[],"memory_usage":[]}`
	const empty = `,"last_inference":0,"inference_count":0,"execution_count":0,` + durations
	for _, tt := range []struct{ request, body, want string }{
		{"GET /v2", "", `200 application/json {"name":"s","version":"1.2.3","extensions":["classification","sequence","model_repository",` +
			`"model_repository(unload_dependents)","schedule_policy","model_configuration",` +
			`"system_shared_memory","cuda_shared_memory","binary_tensor_data","parameters","statistics","trace","logging"]}`},
		{"GET /v2?x=y", "", "200 application/json {\"name\""},
		{"GET /v2/", "", "404 text/plain " + ErrorBody("Not Found")},
		{"GET /", "", "404 text/plain " + ErrorBody("Not Found")},
		{"GET /v2/health/live", "", "200 text/plain "},
		{"GET /v2/health/ready", "", "200 text/plain "},
		{"POST /v2/health/ready", "", "405 text/plain " + ErrorBody("Method Not Allowed")},
		{"GET /v2/models/id_fp32/ready", "", "200 text/plain "},
		{"GET /v2/models/id_fp32/versions/01/ready", "", "200 text/plain "},
		{"GET /v2/models/fails/ready", "", "400 text/plain " + ErrorBody("Model version not ready")},
		{"GET /v2/models/no/ready", "", "404 text/plain " + ErrorBody("Request for unknown model: 'no' is not found")},
		{"GET /v2/models/id_fp32", "", "200 application/json " + id},
		{"GET /v2/models/id%5ffp32/versions/1", "", "200 application/json " + id},
		{"GET /v2/models/batch", "", `200 application/json {"name":"batch","versions":["1"],"platform":"python",` +
			`"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[-1,4]}],"outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[-1,4]}]}`},
		{"PUT /v2/models/id_fp32", "", "405 application/json " + ErrorBody("Method Not Allowed")},
		{"GET /v2/models/id_fp32/versions/7", "", "404 application/json " + ErrorBody("Request for unknown model: 'id_fp32' version 7 is not found")},
		{"GET /v2/models/id_fp32/versions/x", "", "404 text/plain " + ErrorBody("Not Found")},
		{"GET /v2/models/id_fp32/versions/99999999999999999999", "", "400 application/json " +
			ErrorBody("failed to get model version from specified version string '99999999999999999999' (details: stol), version should be an integral value > 0")},
		{"GET /v2/models/id_fp32/config", "", `200 application/json {"name":"id_fp32"}`},
		{"GET /v2/models/id_fp32/versions/1/stats", "", `200 application/json {"model_stats":[{"name":"id_fp32","version":"1"` + empty + `]}`},
		{"GET /v2/models/no/stats", "", "400 application/json " + ErrorBody("requested model 'no' is not available")},
		{"POST /v2/repository/index", "", `200 application/json [{"name":"a","version":"1","state":"READY"},` +
			`{"name":"b","version":"2","state":"UNAVAILABLE","reason":"unloaded"},{"name":"c"}]`},
		{"POST /v2/repository/any/index", `{"ready":true}`, `200 application/json [{"name":"a","version":"1","state":"READY"}]`},
		{"POST /v2/repository/index", `{"ready":1}`, "400 application/json " + ErrorBody("Invalid value for 'ready': expected a boolean")},
		{"POST /v2/repository/index", `[]`, `200 application/json [{"name":"a"`},
		{"POST /v2/repository/index", `{`, "500 application/json " + ErrorBody("failed to parse the request JSON buffer: Missing a name for object member. at 1")},
		{"GET /v2/repository/index", "", "405 application/json " + ErrorBody("Method Not Allowed")},
		{"POST /v2/repository/models/m/load", "", "200 application/json "},
		{"POST /v2/repository/models/m/load", `{"parameters":{"config":"{}","file:1/m.py":"eA==\n","file:1/m.py":"eQ=="}}`, "200 application/json "},
		{"POST /v2/repository/models/m/load", `{"parameters":{"config":""}}`, "200 application/json "},
		{"POST /v2/repository/models/broken/load", "{}", "500 application/json " + ErrorBody("failed to load 'broken', failed to poll from model repository")},
		{"POST /v2/repository/r/models/m/load", "{}", "501 application/json " + ErrorBody("'repository_name' specification is not supported")},
		{"POST /v2/repository/models/m/load", `{"parameters":[]}`, "500 application/json " + ErrorBody("attempt to get members for non-object")},
		{"POST /v2/repository/models/m/load", `{"parameters":{"config":1}}`, "500 application/json " + ErrorBody("attempt to access JSON non-string as string")},
		{"POST /v2/repository/models/m/load", `{"parameters":{"x":"y"}}`, "500 application/json " + ErrorBody("unexpected error on creating Triton parameter")},
		{"POST /v2/repository/models/m/instances", `{"count":2}`, `200 application/json {"name":"m","instances":[{"version":"1","name":"m_0","state":"READY"},{"version":"2","name":"m \"1\"","state":"DRAINING"}]}`},
		{"POST /v2/repository/models/m/instances", `{"count":1024,"group":"g"}`, `200 application/json {"name":"m","instances":[{"version":"1","name":"m_0","state":"READY"},{"version":"2","name":"m \"1\"","state":"DRAINING"}]}`},
		{"POST /v2/repository/models/broken/instances", `{"count":2}`, "503 application/json " + ErrorBody("instances can be changed in model control mode explicit only")},
		{"POST /v2/repository/models/m/instances", "[1", "400 application/json " + ErrorBody(`instances of model 'm': the body is not JSON: Missing a comma or ] after an array element. at 2; want `+rest.WantInstances)},
		{"POST /v2/repository/models/m/instances", `{"count":1025}`, "400 application/json " + ErrorBody("instances of model 'm': 'count' is 1025, want a whole number from 1 to 1024")},
		{"POST /v2/repository/r/models/m/instances", `{"count":1}`, "501 application/json " + ErrorBody("'repository_name' specification is not supported")},
		{"POST /v2/repository/models/m/unload", "", "200 application/json "},
		{"POST /v2/repository/models/m/unload", `{"parameters":{"unload_dependents":true}}`, "200 application/json "},
		{"POST /v2/repository/models/m/unload", `{"parameters":{"unload_dependents":1}}`, "200 application/json "},
		{"GET /v2/logging", "", `200 application/json {"log_file":"","log_info":true,"log_warning":true,"log_error":true,"log_verbose_level":0,"log_format":"default"}`},
		{"POST /v2/logging", `{"log_info":false,"log_warning":null,"log_verbose_level":2,"log_format":"ISO8601"}`,
			`200 application/json {"log_file":"","log_info":false,"log_warning":true,"log_error":true,"log_verbose_level":2,"log_format":"ISO8601"}`},
		{"POST /v2/logging", `{"log_info":true,"log_error":1}`, "500 application/json " + ErrorBody("attempt to access JSON non-boolean as boolean")},
		{"POST /v2/logging", `{"log_format":"x"}`, "503 application/json " + ErrorBody("invalid argument for --log_format, got: x")},
		{"POST /v2/logging", `{"log_file":"x"}`, "501 application/json " + ErrorBody("log file location can not be updated through network protocol")},
		{"POST /v2/logging", ``, "500 application/json " + ErrorBody("failed to parse the request JSON buffer: The document is empty. at 0")},
		{"GET /v2/logging", "", `200 application/json {"log_file":"","log_info":true,`}, // members before the invalid one take effect
		{"GET /v2/systemsharedmemory/status", "", "200 application/json []"},
		{"GET /v2/cudasharedmemory/region/a%20b/status", "", "404 application/json " + ErrorBody("Unable to find cuda shared memory region: 'a b'")},
		{"GET /v2/systemsharedmemory/region/r/status", "", "404 application/json " + ErrorBody("Unable to find system shared memory region: 'r'")},
		{"POST /v2/systemsharedmemory/region/r/register", `{"key":"/k","byte_size":64}`, "501 application/json " + ErrorBody(clientshm.ErrDisabled.Message)},
		{"POST /v2/systemsharedmemory/register", "", "501 application/json " + ErrorBody(clientshm.ErrDisabled.Message)},
		{"POST /v2/cudasharedmemory/region/r/register", "", "501 application/json " + ErrorBody(clientshm.ErrDisabled.Message)},
		{"POST /v2/cudasharedmemory/unregister", "", "501 application/json " + ErrorBody(clientshm.ErrDisabled.Message)},
		{"POST /v2/systemsharedmemory/region/r/unregister", "{}", "501 application/json " + ErrorBody(clientshm.ErrDisabled.Message)},
		{"GET /v2/trace/setting", "", `200 application/json {"trace_level":["OFF"],"trace_rate":"1000"`},
		{"POST /v2/models/id_fp32/trace/setting", `{"trace_level":["OFF"]}`, `200 application/json {"trace_level":["OFF"],"trace_rate":"1000"`},
		{"GET /v2/models/m/versions/1/trace/setting", "", "404 text/plain " + ErrorBody("Not Found")},
		{"POST /v2/models/m/generate", "{}", "404 application/json " + ErrorBody("Request for unknown model: 'm' is not found")},
		{"POST /v2/models/m/versions/1/generate_stream", "{}", "404 application/json " + ErrorBody("Request for unknown model: 'm' is not found")},
		{"GET /v2/models/m/generate", "", "405 application/json " + ErrorBody("Method Not Allowed")},
		{"GET /v2/systemsharedmemory/unregister", "", "405 application/json " + ErrorBody("Method Not Allowed")},
		{"DELETE /v2/logging", "", "405 application/json " + ErrorBody("Method Not Allowed")},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		got := s.Do(t, method, path, tt.body).String()
		if got != tt.want && (!strings.HasPrefix(got, tt.want) || strings.HasSuffix(tt.want, "}") || strings.HasSuffix(tt.want, " ")) {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.request, tt.body, got, tt.want)
		}
	}
	want := []string{`load m "" []`, `load m "{}" [1/m.py="x"]`, `load m " " []`, `load broken "" []`, `instances m "" 2`, `instances m "g" 1024`, "unload m false", "unload m true", "unload m false"}
	if !slices.Equal(core.Loads, want) {
		t.Errorf("loads: got %q, want %q", core.Loads, want)
	}
}

func TestStatisticsAreWrittenAsJSON(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	duration := func(name string, n int) string { return fmt.Sprintf(`"%s":{"count":%d,"ns":%d}`, name, n, 10*n) }
	want := `200 application/json {"model_stats":[{"name":"a","version":"1","last_inference":1700000000000,"inference_count":12,"execution_count":5,"inference_stats":{` +
		strings.Join([]string{duration("success", 1), duration("fail", 2), duration("queue", 3), duration("compute_input", 4),
			duration("compute_infer", 5), duration("compute_output", 6), duration("cache_hit", 7), duration("cache_miss", 8)}, ",") +
		`},"response_stats":{"0":{` + strings.Join([]string{duration("compute_infer", 1), duration("compute_output", 2), duration("success", 3),
		duration("fail", 4), duration("empty_response", 5), duration("cancel", 6)}, ",") +
		`}},"batch_stats":[{"batch_size":4,` + strings.Join([]string{duration("compute_input", 1), duration("compute_infer", 2), duration("compute_output", 3)}, ",") +
		`},{"batch_size":8,` + strings.Join([]string{duration("compute_input", 0), duration("compute_infer", 0), duration("compute_output", 0)}, ",") +
		`}],"memory_usage":[{"type":"CPU","id":0,"byte_size":64}]},{"name":"b","version":"2"`
	if got := s.Do(t, "GET", "/v2/models/stats", "").String(); !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s…", got, want)
	}
}

func TestHealthTellsWhenUnready(t *testing.T) {
	core := servertest.NewCore()
	core.Unready = true
	s := StartHTTP(t, rest.Config{}, core)
	if got := s.Do(t, "GET", "/v2/health/ready", "").String(); got != "400 text/plain " {
		t.Errorf("unready: got %s", got)
	}
	leaving := servertest.NewCore()
	leaving.Down = infer.Errorf(infer.Unavailable, "Server exiting")
	s = StartHTTP(t, rest.Config{}, leaving)
	for _, path := range []string{"/v2/health/live", "/v2/health/ready"} {
		if got, want := s.Do(t, "GET", path, "").String(), "503 text/plain "+ErrorBody("Server exiting"); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// TestLoadOutlivesClient checks that a load continues after its client has disconnected.
func TestLoadOutlivesClient(t *testing.T) {
	core := servertest.NewCore()
	began, left, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	core.OnLoad = func(ctx context.Context, _, _ string, _ map[string][]byte) error {
		close(began)
		<-left
		ended <- ctx.Err()
		return nil
	}
	s := StartHTTP(t, rest.Config{}, core)
	c := s.Connect(t)
	c.Send(Text("POST", "/v2/repository/models/m/load", ""))
	<-began
	_ = c.Close()
	close(left)
	if err := <-ended; err != nil {
		t.Errorf("context of the load: got %v, want it alive", err)
	}
}

func TestRestrictedAPIs(t *testing.T) {
	s := StartHTTP(t, rest.Config{Restricted: []server.Restriction{
		{Groups: []string{"health", "inference"}, Header: "X-Key", Value: "a b"},
		{Groups: []string{"model-repository"}, Header: "admin", Value: "1"},
	}}, nil)
	for _, tt := range []struct {
		name, method, path, header string
		want                       int
	}{
		{"no header", "GET", "/v2/health/live", "A: b", 403},
		{"other value", "GET", "/v2/models/id_fp32/ready", "X-Key: a", 403},
		{"value in other case", "GET", "/v2/health/live", "X-Key: A B", 403},
		{"header in other case", "GET", "/v2/health/live", "x-kEY: a b", 200},
		{"wrong method", "PUT", "/v2/health/live", "A: b", 403},
		{"inference", "POST", "/v2/models/id_fp32/infer", "A: b", 403},
		{"other group", "POST", "/v2/repository/index", "X-Key: a b", 403},
		{"its own", "POST", "/v2/repository/index", "admin: 1", 200},
		{"open", "GET", "/v2", "A: b", 200},
		{"unknown path", "GET", "/v2/health/x", "A: b", 404},
	} {
		got := s.Do(t, tt.method, tt.path, "", tt.header)
		if got.Status != tt.want {
			t.Errorf("%s: got %s, want %d", tt.name, got, tt.want)
		}
		if tt.want == 403 && !strings.HasPrefix(got.Body, `{"error":"This API is restricted, expecting header '`) {
			t.Errorf("%s: got %s", tt.name, got)
		}
	}
}

func TestNewRestrictionsRefuseUnknownGroups(t *testing.T) {
	for _, tt := range []struct {
		groups []string
		want   string
	}{
		{[]string{"health", "logging"}, ""},
		{[]string{"x"}, "unknown restricted api 'x' "},
		{[]string{"health", "health"}, "restricted api 'health' can not be specified in multiple config groups"},
	} {
		_, err := server.NewRestrictions([]server.Restriction{{Groups: tt.groups, Header: "a", Value: "b"}})
		if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
			t.Errorf("%q: got %v, want %q", tt.groups, err, tt.want)
		}
	}
}
