package rest

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/http1"
)

// endpoint is the endpoint of a path.
type endpoint uint8

const (
	epNone endpoint = iota
	epServerLive
	epServerReady
	epServerMetadata
	epModelMetadata
	epModelReady
	epModelConfig
	epModelStatistics
	epInfer
	epLogging
	epRepositoryIndex
	epRepositoryLoad
	epRepositoryUnload
	epRepositoryInstances
	epRegionStatus
	epRegionRegister
	epRegionUnregister
	epTrace
	epGenerate
	epGenerateStream
)

// endpoints has a row for each endpoint, in their order.
var endpoints = [...]struct {
	group  string // for restrictions
	method string // the only one allowed; "" means GET and POST
	// changes means that a POST changes the state of the server, beyond an inference.
	changes bool
	// contentType is the default content type of its replies.
	contentType string
	// serve returns errors that have not been replied.
	serve func(h *Endpoints, w *http1.Reply, r *http1.Request, t target) error
}{
	epNone:             {},
	epServerLive:       {server.GroupHealth, http.MethodGet, false, typePlain, (*Endpoints).serveLive},
	epServerReady:      {server.GroupHealth, http.MethodGet, false, typePlain, (*Endpoints).serveReady},
	epServerMetadata:   {server.GroupMetadata, http.MethodGet, false, typeJSON, (*Endpoints).serveServerMetadata},
	epModelMetadata:    {server.GroupMetadata, http.MethodGet, false, typeJSON, (*Endpoints).serveModelMetadata},
	epModelReady:       {server.GroupHealth, http.MethodGet, false, typePlain, (*Endpoints).serveModelReady},
	epModelConfig:      {server.GroupModelConfig, http.MethodGet, false, typeJSON, (*Endpoints).serveModelConfig},
	epModelStatistics:  {server.GroupStatistics, http.MethodGet, false, typeJSON, (*Endpoints).serveStatistics},
	epInfer:            {server.GroupInference, http.MethodPost, false, typePlain, (*Endpoints).serveInfer},
	epLogging:          {server.GroupLogging, "", true, typeJSON, (*Endpoints).serveLogging},
	epRepositoryIndex:  {server.GroupModelRepository, http.MethodPost, false, typeJSON, (*Endpoints).serveIndex},
	epRepositoryLoad:   {server.GroupModelRepository, http.MethodPost, true, typeJSON, (*Endpoints).serveLoad},
	epRepositoryUnload: {server.GroupModelRepository, http.MethodPost, true, typeJSON, (*Endpoints).serveUnload},

	epRepositoryInstances: {server.GroupModelRepository, http.MethodPost, true, typeJSON, (*Endpoints).serveInstances},

	epRegionStatus:     {server.GroupSharedMemory, http.MethodGet, false, typeJSON, (*Endpoints).serveRegionStatus},
	epRegionRegister:   {server.GroupSharedMemory, http.MethodPost, true, typeJSON, (*Endpoints).serveRegionRegister},
	epRegionUnregister: {server.GroupSharedMemory, http.MethodPost, true, typeJSON, (*Endpoints).serveRegionUnregister},

	epTrace:          {server.GroupTrace, "", true, typeJSON, (*Endpoints).serveTraceSettings},
	epGenerate:       {server.GroupInference, http.MethodPost, false, typeJSON, (*Endpoints).serveGenerate},
	epGenerateStream: {server.GroupInference, http.MethodPost, false, typeJSON, (*Endpoints).serveGenerate},
}

// target is a parsed path.
type target struct {
	endpoint   endpoint
	model      string
	version    string // decimal digits, "" if the path has none
	number     int64  // of the version, set by serve; infer.LatestVersion if the path has none
	repository string
	region     string // of shared memory
	kind       clientshm.Kind
}

// route parses a raw path. Segments match exactly: no empty ones, no slash at the end. Unlike in
// Triton names are percent-decoded, so that all models can be reached.
func route(path string) (t target) {
	rest, ok := strings.CutPrefix(path, "/v2")
	if !ok {
		return t
	}
	if rest == "" {
		t.endpoint = epServerMetadata
		return t
	}
	if rest, ok = strings.CutPrefix(rest, "/models/"); ok {
		return routeModel(rest)
	}
	switch rest = path[len("/v2"):]; rest {
	case "/health/live":
		t.endpoint = epServerLive
	case "/health/ready":
		t.endpoint = epServerReady
	case "/logging":
		t.endpoint = epLogging
	case "/trace/setting":
		t.endpoint = epTrace
	default:
		if rest, ok = strings.CutPrefix(rest, "/repository/"); ok {
			return routeRepository(rest)
		}
		if rest, ok = strings.CutPrefix(path, "/v2/systemsharedmemory/"); ok {
			return routeRegion(rest, clientshm.System)
		}
		if rest, ok = strings.CutPrefix(path, "/v2/cudasharedmemory/"); ok {
			return routeRegion(rest, clientshm.CUDA)
		}
	}
	return t
}

// routeModel parses the path after /v2/models/.
func routeModel(path string) (t target) {
	model, rest, more := strings.Cut(path, "/")
	if model == "" {
		return t
	}
	t.model = decodeSegment(model)
	if !more {
		t.endpoint = epModelMetadata
		if path == "stats" {
			t.endpoint, t.model = epModelStatistics, ""
		}
		return t
	}
	if after, ok := strings.CutPrefix(rest, "versions/"); ok {
		t.version, rest, more = strings.Cut(after, "/")
		if !isNumber(t.version) {
			return target{}
		}
		if !more {
			t.endpoint = epModelMetadata
			return t
		}
	}
	switch rest {
	case "infer":
		t.endpoint = epInfer
	case "ready":
		t.endpoint = epModelReady
	case "config":
		t.endpoint = epModelConfig
	case "stats":
		t.endpoint = epModelStatistics
	case "generate":
		t.endpoint = epGenerate
	case "generate_stream":
		t.endpoint = epGenerateStream
	case "trace/setting":
		if t.version != "" {
			return target{}
		}
		t.endpoint = epTrace
	default:
		return target{}
	}
	return t
}

// routeRepository parses the path after /v2/repository/.
func routeRepository(path string) (t target) {
	segments := strings.SplitN(path, "/", 5)
	for _, s := range segments {
		if s == "" {
			return t
		}
	}
	n := len(segments)
	switch {
	case n <= 2 && segments[n-1] == "index":
		t.endpoint = epRepositoryIndex
	case n == 3 || n == 4:
		if segments[n-3] != "models" {
			return t
		}
		switch segments[n-1] {
		case "load":
			t.endpoint = epRepositoryLoad
		case "unload":
			t.endpoint = epRepositoryUnload
		case "instances":
			t.endpoint = epRepositoryInstances
		default:
			return t
		}
		t.model = decodeSegment(segments[n-2])
		if n == 4 {
			t.repository = segments[0]
		}
	}
	return t
}

// routeRegion parses the path after the kind of shared memory.
func routeRegion(path string, kind clientshm.Kind) (t target) {
	if region, ok := strings.CutPrefix(path, "region/"); ok {
		region, path, _ = strings.Cut(region, "/")
		if region == "" {
			return t
		}
		t.region = decodeSegment(region)
	}
	t.kind = kind
	switch path {
	case "status":
		t.endpoint = epRegionStatus
	case "register":
		t.endpoint = epRegionRegister
	case "unregister":
		t.endpoint = epRegionUnregister
	default:
		return target{}
	}
	return t
}

func isNumber(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

func decodeSegment(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if decoded, err := url.PathUnescape(s); err == nil { // bound: a request line
		return decoded
	}
	return s
}
