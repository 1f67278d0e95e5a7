package server

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/rs/zerolog"
)

// MetricsHTTP serves the metrics on a port of their own. Listen, then Run it once.
type MetricsHTTP struct {
	cfg        HTTPConfig
	exposition http.Handler
	log        zerolog.Logger
	socket     net.Listener
}

// NewMetricsHTTP returns a front end that serves what exposition renders. Of cfg
// it uses the address, the port and the limits.
func NewMetricsHTTP(cfg HTTPConfig, exposition http.Handler, log zerolog.Logger) (*MetricsHTTP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	return &MetricsHTTP{cfg: cfg, exposition: exposition, log: log}, nil
}

// Listen binds the address.
func (m *MetricsHTTP) Listen() error {
	socket, err := listen(m.cfg.Address, m.cfg.Port, m.cfg.ReusePort)
	m.socket = socket
	return err
}

// Addr returns the address that Listen has bound.
func (m *MetricsHTTP) Addr() net.Addr { return m.socket.Addr() }

// Run serves until ctx ends, and then at most ExitTimeout longer.
func (m *MetricsHTTP) Run(ctx context.Context) error {
	l := newListener(m.socket, m.cfg)
	srv := newServer(m.cfg, m, m.log)
	served := make(chan error, 1) // one value, from Serve
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		_ = srv.Close()
		return fmt.Errorf("accept connections: %w", err)
	case <-ctx.Done():
	}
	deadline, stop := context.WithTimeout(context.Background(), m.cfg.ExitTimeout)
	defer stop()
	l.closeSilent()
	if srv.Shutdown(deadline) != nil {
		_ = srv.Close()
	}
	<-served
	return nil
}

// ServeHTTP serves the exposition at /metrics and /metrics/. Other paths are
// empty, other methods refused everywhere.
func (m *MetricsHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin(w, typePlain)
	if r.Method != http.MethodGet {
		writeStatus(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	switch rawPath(r) {
	case "/metrics", "/metrics/":
		// Neither another format nor compression, whatever the client accepts.
		r.Header.Del("Accept")
		r.Header.Del("Accept-Encoding")
		page := rendered{header: http.Header{}, status: http.StatusOK}
		m.exposition.ServeHTTP(&page, r)
		w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
		writeBody(w, page.status, page.body)
	default:
		writeBody(w, http.StatusOK, nil)
	}
}

// rendered keeps a reply, so that its length is known before it is sent and its
// headers are ours.
type rendered struct {
	header http.Header
	status int
	body   []byte
}

func (p *rendered) Header() http.Header         { return p.header }
func (p *rendered) WriteHeader(status int)      { p.status = status }
func (p *rendered) Write(b []byte) (int, error) { p.body = append(p.body, b...); return len(b), nil }
