package server

import (
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/http1"
)

// Types of replies.
const (
	typePlain  = http1.PlainText
	typeJSON   = "application/json"
	typeBinary = "application/octet-stream"
	typeMetric = "text/plain; charset=utf-8"
)

// handle serves one request.
func (h *HTTP) handle(w *http1.Reply, r *http1.Request) {
	t := route(r.Path())
	if t.endpoint == epNone {
		writeStatus(w, http.StatusNotFound, "Not Found")
		return
	}
	ep := &endpoints[t.endpoint]
	if len(h.restrictions) > 0 {
		if want, ok := h.restrictions.Allow(ep.group, r.Header); !ok {
			writeStatus(w, http.StatusForbidden, "This API is restricted, expecting header '"+want+"'")
			return
		}
	}
	w.ContentType = ep.contentType
	if r.Method != ep.method && (ep.method != "" || r.Method != http.MethodGet && r.Method != http.MethodPost) {
		writeStatus(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	if err := h.serve(t, w, r); err != nil {
		writeError(w, err)
	}
}

// serve calls the handler of an endpoint. An error has not been replied yet; the
// reply has the content type that is set.
func (h *HTTP) serve(t target, w *http1.Reply, r *http1.Request) error {
	version := infer.LatestVersion
	if t.version != "" {
		var err error
		if version, err = parseVersion(t.version); err != nil {
			return err
		}
	}
	switch t.endpoint {
	case epInfer:
		return h.serveInfer(w, r, t.model, version)
	case epServerLive:
		return h.serveLive(w)
	case epServerReady:
		return h.serveReady(w, r)
	case epServerMetadata:
		w.Send(http.StatusOK, h.serverJSON)
		return nil
	case epModelMetadata:
		return h.serveModelMetadata(w, t.model, version)
	case epModelReady:
		return h.serveModelReady(w, r, t.model, version)
	case epModelConfig:
		return h.serveModelConfig(w, t.model, version)
	case epModelStatistics:
		return h.serveStatistics(w, t.model, version)
	case epLogging:
		return h.serveLogging(w, r)
	case epRepositoryIndex:
		return h.serveIndex(w, r)
	case epRepositoryLoad:
		return h.serveLoad(t, w, r)
	case epRepositoryUnload:
		return h.serveUnload(t, w, r)
	case epRepositoryInstances:
		return h.serveInstances(t, w, r)
	case epSystemRegionStatus:
		return serveRegionStatus(w, "system", t.region)
	case epCUDARegionStatus:
		return serveRegionStatus(w, "cuda", t.region)
	case epRegionRegister:
		return ErrRegionsOff
	case epRegionUnregister:
		return serveRegionUnregister(w)
	case epTrace:
		return ErrTracesOff
	default:
		return errGenerateOff
	}
}

// parseVersion reads the digits that route found in a path.
func parseVersion(digits string) (int64, error) {
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArg,
			"failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", digits)
	}
	return v, nil
}
