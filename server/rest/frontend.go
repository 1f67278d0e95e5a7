package rest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/certificates"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/http1"
)

// FrontEnd is the HTTP/1.1 front end. Listen, then Run it once.
type FrontEnd struct {
	cfg    Config
	log    zerolog.Logger
	conns  *http1.Server
	socket net.Listener        // from Listen to Run
	shown  *certificates.Store // from Listen on, if connections are encrypted
}

// New checks cfg and returns a front end that does not listen yet.
func New(cfg Config, parts server.Parts, log zerolog.Logger) (*FrontEnd, error) {
	h, err := NewEndpoints(cfg, parts, log)
	if err != nil {
		return nil, err
	}
	return Front(h.cfg, h.parts.Memory, h.Serve, log), nil
}

// Front returns a front end that calls serve for each request. cfg must be valid.
func Front(cfg Config, account *budget.Account, serve func(*http1.Reply, *http1.Request), log zerolog.Logger) *FrontEnd {
	cfg = cfg.WithDefaults()
	f := &FrontEnd{log: log}
	if cfg.encrypts() {
		cfg.TLS = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.shown.Current(), nil },
		}
	}
	f.cfg = cfg
	f.conns = http1.NewServer(cfg.Config, account, http1.Handler{Serve: serve, ErrorBody: errorJSON}, log)
	return f
}

// Listen reads the certificates and binds the address. The error of a port in use is
// syscall.EADDRINUSE. Clients that connect wait until Run.
func (f *FrontEnd) Listen() (err error) {
	if f.cfg.encrypts() {
		if f.shown, err = certificates.Load(f.cfg.Certificates, f.log, "http/1.1"); err != nil {
			return fmt.Errorf("encrypt HTTP: %w", err)
		}
	}
	f.socket, err = connections.Listen(f.cfg.Address, f.cfg.Port, f.cfg.ReusePort, f.cfg.UnixSocket)
	return err
}

// Addr returns the bound address.
func (f *FrontEnd) Addr() net.Addr { return f.socket.Addr() }

// Connections returns the number of open connections.
func (f *FrontEnd) Connections() int { return f.conns.Connections() }

// Run serves until ctx ends and then drains like http1.Server.Run: requests in flight may finish
// within ExitTimeout; after that it cancels their contexts and closes their connections. It returns
// when all handlers have returned; an error counts those that a model still holds.
func (f *FrontEnd) Run(ctx context.Context) error { return f.conns.Run(ctx, f.socket) }

// Leave asks clients to reconnect elsewhere, like http1.Server.Leave, while Run goes on.
func (f *FrontEnd) Leave() { f.conns.Leave() }
