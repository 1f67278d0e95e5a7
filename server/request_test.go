package server

import (
	"bufio"
	"math"
	"net/http"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	var r request
	head := "POST /a?b HTTP/1.1\r\nHost: h\r\nx-Y:\t v w \r\nEmpty:\r\ncontent-LENGTH: 0012\r\nContent-Length: 12\r\nConnection: a, close\r\nExpect: 100-Continue\r\n\r\n"
	if err := r.parse(head); err != nil {
		t.Fatal(err)
	}
	if r.method != "POST" || r.target != "/a?b" || r.minor != 1 || r.length != 12 || !r.close || !r.body.expects || len(r.fields) != 7 {
		t.Errorf("got %+v", r)
	}
	if v, ok := r.header("X-y"); v != "v w" || !ok || r.fields[1].name != "x-Y" {
		t.Errorf("x-Y: got %q, %v", v, ok)
	}
	if v, ok := r.header("empty"); v != "" || !ok {
		t.Errorf("Empty: got %q, %v", v, ok)
	}
	if _, ok := r.header("other"); ok {
		t.Error("other: got one")
	}
	if err := r.parse("GET / HTTP/1.0\r\n\r\n"); err != nil || r.length != 0 || !r.close || r.body.expects || len(r.fields) != 0 {
		t.Errorf("got %+v, %v; want nothing of the request before", r, err)
	}
	if n, err := parseLength("99999999999999999999"); n != math.MaxInt64 || err != nil {
		t.Errorf("got %d, %v, want the largest", n, err)
	}
}

func TestRequestPath(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b": "/a/b", "/a?b?c": "/a", "/a%2fb?": "/a%2fb", "http://h:1/a?b": "/a", "http://h": "/", "*": "*", "/a#b": "/a#b", "/x?a=http://b/c": "/x",
	} {
		if got := (&request{target: target}).path(); got != want {
			t.Errorf("%s: got %s, want %s", target, got, want)
		}
	}
}

func TestRoute(t *testing.T) {
	for path, want := range map[string]target{
		"/v2":                                   {endpoint: epServerMetadata},
		"/v2/models/stats":                      {endpoint: epModelStatistics},
		"/v2/models/stats/versions/1":           {endpoint: epModelMetadata, model: "stats", version: "1"},
		"/v2/models/stats/infer":                {endpoint: epInfer, model: "stats"},
		"/v2/models/m/versions/01/infer":        {endpoint: epInfer, model: "m", version: "01"},
		"/v2/models/a%20b%2Fc/ready":            {endpoint: epModelReady, model: "a b/c"},
		"/v2/models/a%zz":                       {endpoint: epModelMetadata, model: "a%zz"},
		"/v2/models/versions/1":                 {},
		"/v2/models/m/versions/":                {},
		"/v2/models/m/versions/1x":              {},
		"/v2/models/m/versions/1/":              {},
		"/v2/models/m/":                         {},
		"/v2/models//infer":                     {},
		"/v2/models":                            {},
		"/v2x":                                  {},
		"/v2/repository/index":                  {endpoint: epRepositoryIndex},
		"/v2/repository/r/index":                {endpoint: epRepositoryIndex},
		"/v2/repository/r/s/index":              {},
		"/v2/repository/models/m/load":          {endpoint: epRepositoryLoad, model: "m"},
		"/v2/repository/r/models/m/unload":      {endpoint: epRepositoryUnload, model: "m", repository: "r"},
		"/v2/repository/models/models/m/unload": {endpoint: epRepositoryUnload, model: "m", repository: "models"},
		"/v2/repository/models/m/instances":     {endpoint: epRepositoryInstances, model: "m"},
		"/v2/repository/r/models/m/instances":   {endpoint: epRepositoryInstances, model: "m", repository: "r"},
		"/v2/repository/models/m/reload":        {},
		"/v2/repository//models/m/load":         {},
		"/v2/systemsharedmemory/status":         {endpoint: epSystemRegionStatus},
		"/v2/cudasharedmemory/region/r/status":  {endpoint: epCUDARegionStatus, region: "r"},
		"/v2/cudasharedmemory/register":         {endpoint: epRegionRegister},
		"/v2/systemsharedmemory/unregister":     {endpoint: epRegionUnregister},
		"/v2/trace/setting":                     {endpoint: epTrace},
		"/v2/models/m/trace/setting":            {endpoint: epTrace, model: "m"},
		"/v2/models/m/versions/1/trace/setting": {},
		"/v2/models/m/versions/1/generate":      {endpoint: epGenerate, model: "m", version: "1"},
		"/v2/systemsharedmemory/region//status": {},
		"/v2/systemsharedmemory/region/status":  {},
		"/v2/systemsharedmemory/region/r/x":     {},
		"/v2/systemsharedmemory":                {},
	} {
		if got := route(path); got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

// FuzzRequestHead holds what is accepted against net/http: both must see the
// same method, target, headers and end of the body.
func FuzzRequestHead(f *testing.F) {
	f.Add("POST /v2?x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n\r\n")
	f.Add("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n")
	f.Add("GET http://a/b HTTP/1.1\r\nHost:a\r\nA:\r\n\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		end := strings.Index(head, "\r\n\r\n")
		if end < 0 || strings.HasPrefix(head, "\r\n") {
			return
		}
		head = head[:end+4]
		var r request
		if r.parse(head) != nil {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			return // it is stricter about targets and hosts
		}
		if r.method != want.Method || r.target != want.RequestURI || r.length != want.ContentLength && r.length != math.MaxInt64 {
			t.Fatalf("got %s %s with %d bytes, want %s %s with %d", r.method, r.target, r.length, want.Method, want.RequestURI, want.ContentLength)
		}
		for _, field := range r.fields {
			if name := http.CanonicalHeaderKey(field.name); want.Header[name] == nil && name != "Host" && name != "Transfer-Encoding" && name != "Trailer" {
				t.Fatalf("header %q: net/http has none", field.name)
			}
		}
	})
}
