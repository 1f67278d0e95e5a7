package server

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/http1"
)

// HTTP is the HTTP/1.1 front end. Listen, then Run it once.
type HTTP struct {
	cfg          HTTPConfig
	core         Core
	allocate     Allocator
	open         Opener
	account      *memory.Account
	logging      LogControl
	restrictions Restrictions
	forwarding   *Forwarding
	serverJSON   []byte    // the server's metadata
	calls        sync.Pool // of *inferCall
	codecs       http1.Codecs

	conns  *http1.Server
	socket net.Listener // from Listen to Run
}

// NewHTTP checks cfg and returns a front end that does not listen yet.
func NewHTTP(cfg HTTPConfig, parts Parts, log zerolog.Logger) (*HTTP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if parts.Core == nil || parts.Logging == nil {
		return nil, errors.New("Parts has no Core or no Logging, want both")
	}
	cfg.setDefaults()
	h := &HTTP{
		cfg:        cfg,
		core:       parts.Core,
		allocate:   parts.Allocate,
		open:       parts.Open,
		account:    parts.Memory,
		logging:    parts.Logging,
		serverJSON: serverMetadata(cfg.ServerName, cfg.ServerVersion),
	}
	h.restrictions, _ = NewRestrictions(cfg.Restricted) // Validate has
	h.forwarding, _ = NewForwarding(cfg.ForwardPattern) // tried both
	h.calls.New = func() any { return &inferCall{h: h} }
	if h.account == nil {
		h.account = memory.New(memory.Config{})
	}
	h.conns = http1.NewServer(cfg.Config, h.account, http1.Handler{Serve: h.handle, ErrorBody: errorJSON}, log)
	return h, nil
}

// Listen binds the address; errors.Is(err, syscall.EADDRINUSE) tells a port that
// is in use. Clients that connect wait until Run.
func (h *HTTP) Listen() (err error) {
	h.socket, err = connections.Listen(h.cfg.Address, h.cfg.Port, h.cfg.ReusePort)
	return err
}

// Addr returns the address that Listen has bound.
func (h *HTTP) Addr() net.Addr { return h.socket.Addr() }

// Connections returns how many connections are open.
func (h *HTTP) Connections() int { return h.conns.Connections() }

// Run serves until ctx ends. Then it accepts no more connections, closes the
// idle ones at once and lets requests in flight finish within ExitTimeout; after
// that it ends their contexts and closes their connections too. It returns when
// all handlers have returned; an error tells how many have not, because a model
// holds them.
func (h *HTTP) Run(ctx context.Context) error { return h.conns.Run(ctx, h.socket) }
