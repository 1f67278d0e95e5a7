package rest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/openapi"
	"github.com/nereid-serving/nereid/server/servertest"
)

// TestPageNamesTheAddresses requests the page as curl, a browser and a probe would. The probe gets
// Triton's reply.
func TestPageNamesTheAddresses(t *testing.T) {
	s := StartHTTP(t, rest.Config{Addresses: []string{"gRPC: port 8001"}}, nil)
	for _, path := range []string{"/", "/docs"} {
		text := s.Do(t, "GET", path, "", "Accept: */*")
		for _, want := range []string{"/openapi.json", "gRPC: port 8001"} {
			if text.Status != http.StatusOK || text.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(text.Body, want) {
				t.Errorf("%s as text: got %s, want %q in it", path, text, want)
			}
		}
		page := s.Do(t, "GET", path, "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
		if page.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(page.Body, "<!DOCTYPE html>") ||
			!strings.Contains(page.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s in a browser: got %s, want HTML that loads nothing", path, page)
		}
	}
	if got, want := s.Do(t, "GET", "/", "").String(), "404 text/plain "+ErrorBody("Not Found"); got != want {
		t.Errorf("a probe: got %s, want %s", got, want)
	}
	if got, want := s.Do(t, "POST", "/docs", "", "Accept: */*").String(), "405 text/plain "+ErrorBody("Method Not Allowed"); got != want {
		t.Errorf("POST: got %s, want %s", got, want)
	}
}

// TestPageIsRestrictedAsItsContents checks that the page needs the header of each restricted group
// whose data it shows.
func TestPageIsRestrictedAsItsContents(t *testing.T) {
	for _, group := range []string{server.GroupMetadata, server.GroupModelRepository, server.GroupModelConfig} {
		s := StartHTTP(t, rest.Config{Restricted: []server.Restriction{{Groups: []string{group}, Header: "Key", Value: "v"}}}, nil)
		for _, path := range []string{"/docs", "/openapi.json"} {
			if got := s.Do(t, "GET", path, "", "Accept: */*"); got.Status != http.StatusForbidden {
				t.Errorf("%s, %s without the header: got %s, want 403", group, path, got)
			}
			if got := s.Do(t, "GET", path, "", "Key: v"); got.Status != http.StatusOK {
				t.Errorf("%s, %s with the header: got %s, want 200", group, path, got)
			}
		}
	}
}

// TestOpenAPIHasTheServersPaths checks the document of a server without models; package integration
// tests it with models.
func TestOpenAPIHasTheServersPaths(t *testing.T) {
	s := StartHTTP(t, rest.Config{}, nil)
	got := s.Do(t, "GET", "/openapi.json", "")
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(got.Body), &document); err != nil || got.Status != http.StatusOK || document.OpenAPI != openapi.Version {
		t.Fatalf("got %.200s and error %v, want a document of OpenAPI %s", got, err, openapi.Version)
	}
	for _, want := range []string{"get /v2", "get /v2/health/ready", "get /v2/models/stats", "post /v2/repository/index"} {
		method, path, _ := strings.Cut(want, " ")
		if document.Paths[path][method] == nil {
			t.Errorf("%s is not in the document", want)
		}
	}
}

// TestDimensionsOnPagesNeedMemory checks that the page and the document are charged for the
// dimensions of tensors, of which a config can have very many.
func TestDimensionsOnPagesNeedMemory(t *testing.T) {
	core := servertest.NewCore()
	core.Listed = []*kserve.RepositoryIndexResponse_ModelIndex{{Name: "id_bytes", Version: "1", State: "READY"}}
	config := core.Models["id_bytes"].Info.Config
	config.Input[0].Dims = slices.Repeat([]int64{1 << 60}, 400_000)
	s := StartHTTP(t, rest.Config{}, core)
	for _, path := range []string{"/docs", "/openapi.json"} {
		status := 0
		peak := testkit.PeakHeap(s.Blocks.Account.Total, func() { status = s.Do(t, "GET", path, "", "Accept: text/html").Status })
		if status != http.StatusOK || peak.Live > 2*peak.Charged+32<<20 {
			t.Errorf("%s: got status %d, %d bytes of live heap and %d charged", path, status, peak.Live, peak.Charged)
		}
	}
}

// TestAllowedOriginsControlCORSHeaders checks the replies to a browser's preflight requests and to
// requests from pages of other sites.
func TestAllowedOriginsControlCORSHeaders(t *testing.T) {
	preflight := []string{"Origin: https://a.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,x-key"}
	for _, c := range []struct {
		name    string
		allowed []string
		status  int
		origin  string
	}{
		{"none", nil, http.StatusMethodNotAllowed, ""},
		{"another", []string{"https://b.example"}, http.StatusMethodNotAllowed, ""},
		{"this one", []string{"https://b.example", "https://a.example"}, http.StatusOK, "https://a.example"},
		{"any", []string{"*"}, http.StatusOK, "*"},
	} {
		s := StartHTTP(t, rest.Config{AllowOrigins: c.allowed}, nil)
		got := s.Do(t, "OPTIONS", "/v2/models/id_int32/infer", "", preflight...)
		if got.Status != c.status || got.Header.Get("Access-Control-Allow-Origin") != c.origin {
			t.Errorf("%s: got %s with origin %q, want %d with %q", c.name, got, got.Header.Get("Access-Control-Allow-Origin"), c.status, c.origin)
		}
		methods, headers := got.Header.Get("Access-Control-Allow-Methods"), got.Header.Get("Access-Control-Allow-Headers")
		if allowed := c.status == http.StatusOK; allowed != (methods == "GET, POST") || allowed != (headers == "content-type,x-key") {
			t.Errorf("%s: got the methods %q and the headers %q", c.name, methods, headers)
		}
		for _, path := range []string{"/v2", "/v2/nothing"} {
			reply := s.Do(t, "GET", path, "", preflight[0])
			if got := reply.Header.Get("Access-Control-Allow-Origin"); got != c.origin {
				t.Errorf("%s: GET %s: got origin %q, want %q", c.name, path, got, c.origin)
			}
			if got := reply.Header.Get("Access-Control-Expose-Headers"); (got != "") != (c.origin != "") {
				t.Errorf("%s: GET %s: got the headers %q to be read", c.name, path, got)
			}
		}
		if got := s.Do(t, "GET", "/v2", "").Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s: a client that is no browser is told of %q", c.name, got)
		}
	}
	for _, bad := range []string{"a.example", "https://a.example/", "https://*.example", "https://a.example/x", ""} {
		if err := (rest.Config{AllowOrigins: []string{bad}}).Validate(); err == nil {
			t.Errorf("origin %q is taken, want it refused", bad)
		}
	}
}
