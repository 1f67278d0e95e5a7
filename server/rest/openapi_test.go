package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestOpenAPIHasEveryEndpoint checks that the document has the path and the methods of each
// endpoint. The amplification test (integration/amplification) takes the endpoints from it.
func TestOpenAPIHasEveryEndpoint(t *testing.T) {
	core := servertest.NewCore()
	core.Listed = []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "id_bytes", Version: "1", State: "READY"}}
	s := StartHTTP(t, rest.Config{}, core)
	var document struct{ Paths map[string]map[string]any }
	got := s.Do(t, "GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(got.Body), &document); err != nil {
		t.Fatal(err)
	}
	found := map[int]map[string]bool{}
	for path, methods := range document.Paths {
		e := rest.EndpointOf(path)
		if e == 0 {
			t.Errorf("the path %s in the document names no endpoint", path)
		}
		if found[e] == nil {
			found[e] = map[string]bool{}
		}
		for method := range methods {
			found[e][strings.ToUpper(method)] = true
		}
	}
	for e, method := range rest.Methods() {
		want := []string{method}
		if method == "" {
			want = []string{http.MethodGet, http.MethodPost}
		}
		for _, method := range want {
			if !found[e][method] {
				t.Errorf("endpoint %d: the document has no path for %s", e, method)
			}
		}
	}
}
