package rest

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/http1"
)

// Metrics serves the metrics on a port of their own. Listen, then Run it once.
type Metrics struct {
	cfg        Config
	exposition http.Handler
	conns      *http1.Server
	socket     net.Listener
}

// NewMetrics returns a front end that serves what exposition renders. Of cfg
// it uses the address, the port and the limits.
func NewMetrics(cfg Config, exposition http.Handler, log zerolog.Logger) (*Metrics, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	m := &Metrics{cfg: cfg, exposition: exposition}
	m.conns = http1.NewServer(cfg.Config, nil, http1.Handler{Serve: m.handle, ErrorBody: errorJSON}, log)
	return m, nil
}

// Listen binds the address.
func (m *Metrics) Listen() (err error) {
	m.socket, err = connections.Listen(m.cfg.Address, m.cfg.Port, m.cfg.ReusePort)
	return err
}

// Addr returns the address that Listen has bound.
func (m *Metrics) Addr() net.Addr { return m.socket.Addr() }

// Run serves until ctx ends, and then at most ExitTimeout longer.
func (m *Metrics) Run(ctx context.Context) error { return m.conns.Run(ctx, m.socket) }

// handle serves the exposition at /metrics and /metrics/. Other paths are empty,
// other methods refused everywhere.
func (m *Metrics) handle(w *http1.Reply, r *http1.Request) {
	if r.Method != http.MethodGet {
		RefuseMethod(w)
		return
	}
	path := r.Path()
	if path != "/metrics" && path != "/metrics/" {
		w.Send(http.StatusOK, nil)
		return
	}
	WriteExposition(w, r, m.exposition, typeMetric)
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
