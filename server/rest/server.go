package rest

import (
	"net/http"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
	"github.com/nereid-serving/nereid/server/rest/generate"
	"github.com/nereid-serving/nereid/server/rest/inference"
	"github.com/nereid-serving/nereid/server/rest/origins"
)

// Endpoints serve the requests of the protocol, for any front end.
type Endpoints struct {
	cfg          Config
	parts        server.Parts
	restrictions server.Restrictions
	origins      *origins.Allowed // nil: no pages of other sites
	serverJSON   []byte           // the server's metadata
	bodies       *body.Gatherer
	inferences   *inference.Codec
	generations  *generate.Codec
	log          zerolog.Logger
}

// NewEndpoints checks cfg and returns its endpoints. The fields about connections are not used.
func NewEndpoints(cfg Config, parts server.Parts, log zerolog.Logger) (*Endpoints, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	h := &Endpoints{cfg: cfg, parts: parts, serverJSON: serverMetadata(cfg.ServerName, cfg.ServerVersion), log: log}
	access, _ := server.NewAccess(cfg.Restricted, cfg.ForwardPattern) // cannot fail after Validate
	h.restrictions = access.Restrictions
	h.origins, _ = origins.New(cfg.AllowOrigins)
	h.bodies = &body.Gatherer{Open: parts.Open, Account: parts.Memory, MaxBytes: cfg.MaxInputBytes}
	h.inferences = inference.NewCodec(h.bodies, parts.Allocate, parts.Regions, access.Forwarding, cfg.Framing)
	h.generations = generate.NewCodec(h.bodies, parts.Allocate, access.Forwarding)
	return h, nil
}

// Content types of replies.
const (
	typePlain  = http1.PlainText
	typeJSON   = "application/json"
	typeMetric = "text/plain; charset=utf-8"
)

// Serve serves one request: a Handler of package http1.
func (h *Endpoints) Serve(w *http1.Reply, r *http1.Request) {
	if h.origins != nil && h.origins.Preflight(w, r) {
		return
	}
	t := route(r.Path())
	if t.endpoint == epNone {
		if !h.servePage(w, r) {
			writeStatus(w, http.StatusNotFound, "Not Found")
		}
		return
	}
	ep := &endpoints[t.endpoint]
	if !h.Allow(w, r, ep.group) {
		return
	}
	w.ContentType = ep.contentType
	if r.Method != ep.method && (ep.method != "" || r.Method != http.MethodGet && r.Method != http.MethodPost) {
		RefuseMethod(w)
		return
	}
	if ep.changes && r.Method == http.MethodPost && !h.AllowChange(w, r) {
		return
	}
	if err := h.serve(t, w, r); err != nil {
		WriteError(w, err)
	}
}

// Allow reports whether a request has the header that its group of endpoints requires. If not, it
// has replied.
func (h *Endpoints) Allow(w *http1.Reply, r *http1.Request, group string) bool {
	if len(h.restrictions) == 0 {
		return true
	}
	want, ok := h.restrictions.Allow(group, r.Header)
	if !ok {
		writeStatus(w, http.StatusForbidden, "This API is restricted, expecting header '"+want+"'")
	}
	return ok
}

// CrossSite reports whether a browser has sent the request for a page of another site.
func CrossSite(r *http1.Request) bool {
	site, _ := r.Header("Sec-Fetch-Site")
	return site == "cross-site"
}

// AllowChange reports whether a request may change something. Pages of other sites may not, unless
// their origin is allowed by name. Then it has replied. Browsers send such requests without a
// preflight.
func (h *Endpoints) AllowChange(w *http1.Reply, r *http1.Request) bool {
	if !CrossSite(r) || h.origins != nil && h.origins.Names(r) {
		return true
	}
	writeStatus(w, http.StatusForbidden, "pages of other sites may not change anything here; --http-cors-allow-origin=https://example.org allows one by name")
	return false
}

// RefuseMethod replies that the method is not allowed.
func RefuseMethod(w *http1.Reply) { writeStatus(w, http.StatusMethodNotAllowed, "Method Not Allowed") }

// serve calls the handler of an endpoint. It returns errors that have not been replied; the reply
// has their content type.
func (h *Endpoints) serve(t target, w *http1.Reply, r *http1.Request) (err error) {
	t.number = infer.LatestVersion
	if t.version != "" {
		if t.number, err = parseVersion(t.version); err != nil {
			return err
		}
	}
	return endpoints[t.endpoint].serve(h, w, r, t)
}

func (h *Endpoints) serveInfer(w *http1.Reply, r *http1.Request, t target) error {
	return h.Infer(w, r, t.model, t.number)
}

func (h *Endpoints) serveGenerate(w *http1.Reply, r *http1.Request, t target) error {
	return h.Generate(w, r, t.model, t.number, t.endpoint == epGenerateStream)
}

// parseVersion parses the digits that route has found in a path.
func parseVersion(digits string) (int64, error) {
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, infer.Errorf(infer.InvalidArg,
			"failed to get model version from specified version string '%s' (details: stol), version should be an integral value > 0", digits)
	}
	return v, nil
}

// httpStatus maps a code to the status of a reply.
func httpStatus(c infer.Code) int {
	switch c {
	case infer.Internal:
		return http.StatusInternalServerError
	case infer.NotFound:
		return http.StatusNotFound
	case infer.Unavailable:
		return http.StatusServiceUnavailable
	case infer.Unsupported:
		return http.StatusNotImplemented
	default: // Unknown, InvalidArg, AlreadyExists, Cancelled
		return http.StatusBadRequest
	}
}

// writeStatus replies with an error, with the content type that has been set.
func writeStatus(w *http1.Reply, status int, message string) {
	body, err := Room(w, errorBytes+jsontext.TextBytes(message))
	if err != nil {
		status, message = http.StatusServiceUnavailable, infer.AsError(err).Message
	}
	w.Send(status, appendError(body, message))
}

// errorJSON returns the body of a reply with a short error.
func errorJSON(message string) []byte { return appendError(nil, message) }

// errorBytes is the length of the body of an error without its text.
const errorBytes = 16

func appendError(b []byte, message string) []byte {
	return append(jsontext.AppendString(append(b, `{"error":`...), message), '}')
}

// Room returns room for a body of n bytes, which is charged until the reply has been sent.
//
// bound: charged
func Room(w *http1.Reply, n int) ([]byte, error) {
	if n <= http1.InlineReply {
		return make([]byte, 0, n), nil // bound: the connection has been charged for it
	}
	return budget.Grow(w.Charge(), budget.Replies, []byte(nil), n)
}

// SendJSON replies with a JSON body of at most n bytes, which appendBody appends.
func SendJSON(w *http1.Reply, n int, appendBody func(b []byte) []byte) error {
	b, err := Room(w, n)
	if err != nil {
		return err
	}
	w.Send(http.StatusOK, appendBody(b))
	return nil
}

// WriteError replies with err, with the content type that has been set.
func WriteError(w *http1.Reply, err error) { WriteErrorAs(w, httpStatus(infer.AsError(err).Code), err) }

// WriteErrorAs is WriteError with another status.
func WriteErrorAs(w *http1.Reply, status int, err error) {
	writeStatus(w, status, infer.AsError(err).Message)
}
