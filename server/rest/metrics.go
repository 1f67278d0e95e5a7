package rest

import (
	"net/http"
	"net/url"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server/http1"
)

// NewMetrics returns a front end that serves what exposition renders. Of cfg
// it uses the address, the port and the limits.
func NewMetrics(cfg Config, exposition http.Handler, log zerolog.Logger) (*FrontEnd, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return Front(cfg, nil, func(w *http1.Reply, r *http1.Request) { serveMetrics(w, r, exposition) }, log), nil
}

// serveMetrics serves the exposition at /metrics and /metrics/. Other paths are empty,
// other methods refused everywhere.
func serveMetrics(w *http1.Reply, r *http1.Request, exposition http.Handler) {
	if r.Method != http.MethodGet {
		RefuseMethod(w)
		return
	}
	path := r.Path()
	if path != "/metrics" && path != "/metrics/" {
		w.Send(http.StatusOK, nil)
		return
	}
	WriteExposition(w, r, exposition, typeMetric)
}

// WriteExposition replies with what exposition renders, as that type.
func WriteExposition(w *http1.Reply, r *http1.Request, exposition http.Handler, contentType string) {
	// Without headers: neither another format nor compression, whatever the
	// client accepts.
	scrape := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody}).WithContext(r.Context())
	page := rendered{header: http.Header{}, status: http.StatusOK}
	exposition.ServeHTTP(&page, scrape)
	w.ContentType = contentType
	w.Send(page.status, page.body)
}

// rendered keeps what a handler replies, so that it can be sent as one.
type rendered struct {
	header http.Header
	status int
	body   []byte
}

func (p *rendered) Header() http.Header         { return p.header }
func (p *rendered) WriteHeader(status int)      { p.status = status }
func (p *rendered) Write(b []byte) (int, error) { p.body = append(p.body, b...); return len(b), nil }
