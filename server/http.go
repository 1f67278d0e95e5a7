package server

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Parts are what the front ends share.
type Parts struct {
	Core Core
	// Allocate lends memory for tensors of more than 4096 bytes.
	Allocate Allocator
	// Budget bounds the memory of requests; nil means a NewBudget(0) of its own.
	Budget *Budget
	// Logging shows and changes the log settings.
	Logging LogControl
}

// HTTP is the HTTP/1.1 front end. Listen, then Run it once.
type HTTP struct {
	cfg          HTTPConfig
	core         Core
	allocate     Allocator
	budget       *Budget
	logging      LogControl
	log          zerolog.Logger
	restrictions restrictions
	forwarding   *forwarding
	serverJSON   []byte    // the server's metadata
	calls        sync.Pool // of *inferCall
	codecs       codecs

	socket net.Listener // from Listen to Run

	serving atomic.Int64  // requests inside ServeHTTP
	idle    chan struct{} // gets a value when serving falls to 0; has room for one
}

// closeGrace is how long Run waits, after it has closed the connections and
// ended the contexts, for handlers that still wait for a model.
const closeGrace = 2 * time.Second

// NewHTTP checks cfg and returns a front end that does not listen yet.
func NewHTTP(cfg HTTPConfig, parts Parts, log zerolog.Logger) (*HTTP, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	h := &HTTP{
		cfg:      cfg,
		core:     parts.Core,
		allocate: parts.Allocate,
		budget:   parts.Budget,
		logging:  parts.Logging,
		log:      log,
		idle:     make(chan struct{}, 1),
	}
	h.restrictions, _ = newRestrictions(cfg.Restricted) // Validate has
	h.forwarding, _ = newForwarding(cfg.ForwardPattern) // tried both
	h.serverJSON = serverMetadata(cfg.ServerName, cfg.ServerVersion)
	h.calls.New = func() any { return &inferCall{h: h} }
	if h.budget == nil {
		h.budget = NewBudget(0)
	}
	return h, nil
}

// Listen binds the address. Clients that connect wait until Run.
func (h *HTTP) Listen() error {
	socket, err := listen(h.cfg.Address, h.cfg.Port, h.cfg.ReusePort)
	if err != nil {
		return err
	}
	h.socket = socket
	return nil
}

// listen binds a TCP address, shared with other servers if reuse is set.
func listen(address string, port int, reuse bool) (net.Listener, error) {
	var cfg net.ListenConfig
	if reuse {
		cfg.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if control := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}); control != nil {
				return control
			}
			return err
		}
	}
	return cfg.Listen(context.Background(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
}

// Addr returns the address that Listen has bound.
func (h *HTTP) Addr() net.Addr { return h.socket.Addr() }

// Run serves until ctx ends. Then it accepts no more connections, closes the
// idle ones at once and lets requests in flight finish within ExitTimeout; after
// that it ends their contexts and closes their connections too. It returns when
// all handlers have returned; an error tells how many have not, because a model
// holds them.
func (h *HTTP) Run(ctx context.Context) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	l := newListener(h.socket, h.cfg)
	srv := newServer(h.cfg, h, h.log)
	srv.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(requests, lifeKey{}, requests)
	}
	if h.forwarding != nil {
		l.record = h.cfg.MaxHeaderBytes + 4096 // and what net/http's reader holds beyond
		srv.ConnContext = rememberConn
		srv.ConnState = forgetHead
	}

	served := make(chan error, 1) // one value, from Serve
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		_ = srv.Close()
		cancel()
		return errors.Join(fmt.Errorf("accept connections: %w", err), h.drain())
	case <-ctx.Done():
	}
	err := h.shutdown(srv, l, cancel)
	<-served
	return err
}

func (h *HTTP) shutdown(srv *http.Server, l *listener, cancel context.CancelFunc) error {
	deadline, stop := context.WithTimeout(context.Background(), h.cfg.ExitTimeout)
	defer stop()
	l.closeSilent()
	if srv.Shutdown(deadline) == nil {
		return nil
	}
	cancel()
	_ = srv.Close()
	return h.drain()
}

// drain waits for the handlers that are left.
func (h *HTTP) drain() error {
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	for h.serving.Load() > 0 {
		select {
		case <-h.idle:
		case <-grace.C:
			return fmt.Errorf("%d HTTP requests are still in flight %v after their connections were closed", h.serving.Load(), closeGrace)
		}
	}
	return nil
}

// newServer returns a net/http server with the limits of cfg. It has one read
// deadline for a request's head and the beginning of its body: net/http lifts it
// when it has seen the body's end, readers of longer bodies move it.
func newServer(cfg HTTPConfig, handler http.Handler, log zerolog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      handler,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		ReadTimeout:                  cfg.HeaderTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		// net/http allows 4096 bytes more than it is told.
		MaxHeaderBytes: max(cfg.MaxHeaderBytes-4096, 1),
		ErrorLog:       stdlog.New(netLog{log}, "", 0),
	}
}

// netLog takes what net/http says about connections; clients cause most of it.
type netLog struct{ log zerolog.Logger }

func (l netLog) Write(p []byte) (int, error) {
	l.log.Debug().Bytes("error", p).Msg("http connection")
	return len(p), nil
}

// lifeKey finds in a request's context the one that outlives the client.
type lifeKey struct{}

// lifeContext returns a context for work that goes on when the client has left:
// it ends with the server.
func lifeContext(r *http.Request) context.Context {
	if life, ok := r.Context().Value(lifeKey{}).(context.Context); ok {
		return life
	}
	return context.WithoutCancel(r.Context())
}
