package openai

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/http1"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/rest/body"
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream; charset=utf-8"
)

// endpoints serve the requests of one front end.
type endpoints struct {
	cfg          Config
	parts        server.Parts
	bodies       *body.Gatherer
	restrictions server.Restrictions
	template     *chatTemplate // nil: no chat
	log          zerolog.Logger

	mu      sync.Mutex
	noticed map[string]time.Time // when each model was first seen ready
}

// New checks cfg and returns a front end that does not listen yet.
func New(cfg Config, parts server.Parts, log zerolog.Logger) (*rest.FrontEnd, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	cfg.REST = cfg.REST.WithDefaults()
	cfg.DefaultMaxTokens = cmp.Or(cfg.DefaultMaxTokens, DefaultMaxTokens)
	h := &endpoints{cfg: cfg, parts: parts, log: log, noticed: map[string]time.Time{}}
	h.restrictions, _ = newRestrictions(cfg.Restricted) // cannot fail after Validate
	var err error
	if h.template, err = loadTemplate(cfg.Tokenizer, cfg.ChatTemplate); err != nil {
		return nil, err
	}
	h.bodies = &body.Gatherer{Open: parts.Open, Account: parts.Memory, MaxBytes: cfg.REST.MaxInputBytes}
	return rest.Front(cfg.REST, parts.Memory, h.serve, log), nil
}

// The paths of inferences.
const (
	pathChat        = "/v1/chat/completions"
	pathCompletions = "/v1/completions"
	pathEmbeddings  = "/v1/embeddings"
	pathModels      = "/v1/models"
)

// serve serves one request: a Handler of package http1.
func (h *endpoints) serve(w *http1.Reply, r *http1.Request) {
	if most := h.bodies.MaxBytes; r.Length > most {
		tooLarge(w, r.Length, most)
		return
	}
	path := r.Path()
	if want, ok := h.restrictions.Allow(group(r.Method, path), r.Header); !ok {
		writeFramed(w, http.StatusUnauthorized, "This API is restricted, expecting header '"+want+"' with valid value", "invalid_auth")
		return
	}
	method, endpoint := h.route(path)
	switch {
	case endpoint == nil:
		if short := strings.TrimSuffix(path, "/"); short != path {
			if _, known := h.route(short); known != nil {
				w.Header = http1.Field{Name: "Location", Value: short}
				w.Send(http.StatusTemporaryRedirect, nil)
				return
			}
		}
		h.writeError(w, r, &refusal{status: http.StatusNotFound, text: "Not Found"})
	case r.Method != method:
		w.Header = http1.Field{Name: "Allow", Value: method}
		h.writeError(w, r, &refusal{status: http.StatusMethodNotAllowed, text: "Method Not Allowed"})
	default:
		w.ContentType = typeJSON
		if err := endpoint(w, r); err != nil && !errors.Is(err, errReplied) {
			h.writeError(w, r, err)
		}
	}
}

// handler serves one endpoint. It returns errors that have not been replied.
type handler func(*http1.Reply, *http1.Request) error

func (h *endpoints) route(path string) (method string, serve handler) {
	switch path {
	case pathChat:
		return http.MethodPost, func(w *http1.Reply, r *http1.Request) error { return h.serveGeneration(w, r, true) }
	case pathCompletions:
		return http.MethodPost, func(w *http1.Reply, r *http1.Request) error { return h.serveGeneration(w, r, false) }
	case pathEmbeddings:
		return http.MethodPost, h.serveEmbeddings
	case pathModels:
		return http.MethodGet, h.serveModels
	case "/health/ready":
		return http.MethodGet, h.serveReady
	case "/metrics":
		if h.cfg.Exposition != nil {
			return http.MethodGet, h.serveMetrics
		}
	}
	name, ok := strings.CutPrefix(path, pathModels+"/")
	if !ok {
		return "", nil
	}
	name, action, _ := strings.Cut(name, "/")
	name, err := url.PathUnescape(name) // bound: a request line
	if err != nil || name == "" {
		return "", nil
	}
	switch action {
	case "":
		if strings.HasSuffix(path, "/") {
			return "", nil
		}
		return http.MethodGet, func(w *http1.Reply, _ *http1.Request) error { return h.serveModel(w, name) }
	case "load":
		return http.MethodPost, func(w *http1.Reply, r *http1.Request) error { return h.serveLoad(w, r, name) }
	case "unload":
		return http.MethodPost, func(w *http1.Reply, r *http1.Request) error { return h.serveUnload(w, r, name) }
	}
	return "", nil
}

// group returns the group of endpoints of a request. The path is considered only until the group is
// known.
func group(method, path string) string {
	begins := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	switch {
	case method == http.MethodPost && (begins(pathChat) || begins(pathCompletions) || begins(pathEmbeddings)):
		return groupInference
	case method == http.MethodGet && begins(pathModels), method == http.MethodPost && begins(pathModels+"/"):
		return groupRepository
	case method == http.MethodGet && begins("/metrics"):
		return groupMetrics
	case method == http.MethodGet && begins("/health"):
		return groupHealth
	}
	return ""
}

func tooLarge(w *http1.Reply, n, most int64) {
	writeFramed(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("Request size of %d bytes exceeds the maximum allowed input size of %d bytes. "+
		"Use --http-max-input-size to increase the limit.", n, most), "content_too_large")
}

var errReplied = errors.New("the reply has been sent")

// charge returns a new charge for the memory of a request.
func (h *endpoints) charge(r *http1.Request) budget.Charge {
	return budget.Charge{Account: h.parts.Memory, Holder: r.Holder()}
}

// whole calls use with the whole body of a request and with a charge, which includes the body and
// is settled when use has returned. From here on the request's context ends if the client
// disconnects; the caller calls Unwatch.
func (h *endpoints) whole(w *http1.Reply, r *http1.Request, use func(text []byte, c *budget.Charge) error) error {
	c := h.charge(r)
	defer c.Settle()
	b := body.NewReader(r.Body(), r.Length)
	limit := h.bodies.MaxBytes + 1
	if b.Left >= 0 {
		limit = b.Left
	}
	text, room, err := h.bodies.Gather(&b, &c, budget.JSON, limit, b.Left > body.FirstStep)
	if room != nil {
		defer room.Release()
	}
	if err != nil {
		return ofRequest(err)
	}
	if n := int64(len(text)); n > h.bodies.MaxBytes {
		tooLarge(w, n, h.bodies.MaxBytes)
		return errReplied
	}
	r.Watch()
	return ofRequest(use(text, &c))
}

// serveReady serves GET /health/ready.
func (h *endpoints) serveReady(w *http1.Reply, r *http1.Request) error {
	if ready, err := h.parts.Core.Ready(r.Context()); err != nil || !ready {
		return refuse("Attached inference engine is not ready for inference requests.")
	}
	w.Send(http.StatusOK, nil)
	return nil
}

// serveMetrics serves GET /metrics.
func (h *endpoints) serveMetrics(w *http1.Reply, r *http1.Request) error {
	rest.WriteExposition(w, r, h.cfg.Exposition, "text/plain; charset=utf-8")
	return nil
}

// target returns the latest version of a model, or the error of an unknown one.
func (h *endpoints) target(name string) (found target, err error) {
	found, err = h.parts.Core.Target(name, infer.LatestVersion)
	if err == nil {
		return found, nil
	}
	if _, down := h.parts.Core.Live(); down != nil {
		return nil, failure(down)
	}
	return nil, unknownModel(http.StatusBadRequest, name)
}
