package server

import (
	"net/http"
	"runtime/debug"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

// ServeHTTP serves one request. A panic in it, or a fault in memory that a
// client has truncated, fails that request alone.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.serving.Add(1)
	defer h.served(w, r)
	debug.SetPanicOnFault(true)
	if r.Method == http.MethodConnect {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	t := route(rawPath(r))
	if t.endpoint == epNone {
		begin(w, typePlain)
		h.discardBody(w, r)
		writeStatus(w, http.StatusNotFound, "Not Found")
		return
	}
	ep := &endpoints[t.endpoint]
	if len(h.restrictions) > 0 {
		if want, ok := h.restrictions.allow(ep.group, headerOf(r)); !ok {
			begin(w, typePlain)
			h.discardBody(w, r)
			writeStatus(w, http.StatusForbidden, "This API is restricted, expecting header '"+want+"'")
			return
		}
	}
	begin(w, ep.contentType)
	if r.Method != ep.method && (ep.method != "" || r.Method != http.MethodGet && r.Method != http.MethodPost) {
		h.discardBody(w, r)
		writeStatus(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	if err := h.serve(t, w, r); err != nil {
		h.discardBody(w, r)
		writeError(w, err)
	}
}

// serve calls the handler of an endpoint. An error has not been replied yet; the
// reply has the content type that is set.
func (h *HTTP) serve(t target, w http.ResponseWriter, r *http.Request) error {
	if t.endpoint == epInfer {
		return h.serveInfer(t, w, r)
	}
	version := infer.LatestVersion
	if t.version != "" {
		var err error
		if version, err = parseVersion(t.version); err != nil {
			return err
		}
	}
	switch t.endpoint {
	case epServerLive:
		return h.serveLive(w)
	case epServerReady:
		return h.serveReady(w, r)
	case epServerMetadata:
		writeBody(w, http.StatusOK, h.serverJSON)
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
	default:
		return h.serveUnload(t, w, r)
	}
}

// served ends a request, however it ended.
func (h *HTTP) served(w http.ResponseWriter, r *http.Request) {
	cause := recover()
	if h.serving.Add(-1) == 0 {
		select {
		case h.idle <- struct{}{}:
		default:
		}
	}
	switch cause {
	case nil:
		return
	case http.ErrAbortHandler:
		panic(cause)
	}
	h.log.Error().Interface("error", cause).Str("request", r.Method+" "+rawPath(r)).
		Bytes("stack", debug.Stack()).Msg("request handler panicked")
	if w.Header()["Content-Length"] != nil { // a reply is on its way already
		panic(http.ErrAbortHandler)
	}
	clear(w.Header())
	begin(w, typePlain)
	w.Header()["Connection"] = []string{"close"}
	writeStatus(w, http.StatusInternalServerError, "internal error while serving the request")
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

func headerOf(r *http.Request) func(string) (string, bool) {
	return func(name string) (string, bool) {
		values := r.Header.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
}

// writeBody writes a whole reply. net/http adds the length of a short one itself.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	if len(body) > implicitLength {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, _ = w.Write(body) // the client may have gone
}

// implicitLength is the longest reply that net/http holds back until the handler
// has returned, when it knows the length.
const implicitLength = 2048
