package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestJSONNestsToOneDepthEverywhere checks that each endpoint that reads JSON accepts 100 nested
// brackets and rejects 101.
func TestJSONNestsToOneDepthEverywhere(t *testing.T) {
	path := ""
	s := StartHTTP(t, rest.Config{}, nil, servertest.WithRegions(t, &path))
	paths := []string{
		"/v2/models/id_int32/infer", "/v2/models/id_int32/generate", "/v2/models/id_int32/generate_stream",
		"/v2/logging", "/v2/trace/setting", "/v2/models/id_int32/trace/setting",
		"/v2/repository/index", "/v2/repository/models/m/load", "/v2/repository/models/m/unload", "/v2/repository/models/m/instances",
		"/v2/systemsharedmemory/region/r/register", "/v2/cudasharedmemory/region/r/register",
	}
	const tooDeep = "JSON nesting depth exceeds maximum allowed limit (100)"
	check := func(path, begin, end string, around int) {
		t.Helper()
		body := func(depth int) string {
			return begin + strings.Repeat("[", depth-around) + "1" + strings.Repeat("]", depth-around) + end
		}
		if got := s.Do(t, "POST", path, body(100)); strings.Contains(got.Body, tooDeep) {
			t.Errorf("%s %s at depth 100: got %.300s, want it read", path, begin, got)
		}
		if got := s.Do(t, "POST", path, body(101)); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, tooDeep) {
			t.Errorf("%s %s at depth 101: got %.300s, want it refused", path, begin, got)
		}
	}
	tested := map[int]bool{rest.EndpointOf("/v2/systemsharedmemory/unregister"): true} // has no body
	for _, path := range paths {
		check(path, "", "", 0)
		check(path, `{"x":`, "}", 1)
		tested[rest.EndpointOf(path)] = true
	}
	for e, method := range rest.Methods() {
		if method != http.MethodGet && !tested[e] {
			t.Errorf("endpoint %d is not tested", e)
		}
	}
	input := `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":`
	check("/v2/models/id_int32/infer", input, "}]}", 3)
	check("/v2/models/id_int32/generate", `{"INPUT0":`, "}", 1)
	for path, body := range map[string]string{
		"/v2/models/id_int32/infer":    input + strings.Repeat("[", 97) + "1" + strings.Repeat("]", 97) + "}]}",
		"/v2/models/id_int32/generate": `{"INPUT0":` + strings.Repeat("[", 99) + "1" + strings.Repeat("]", 99) + "}",
	} {
		if got := s.Do(t, "POST", path, body); got.Status != http.StatusOK {
			t.Errorf("%s with a tensor at depth 100: got %.300s, want 200", path, got)
		}
	}
}
