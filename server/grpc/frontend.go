package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc/message"
	"github.com/nereid-serving/nereid/server/grpc/replies"
)

// FrontEnd is the gRPC front end. Listen, then Run it once.
type FrontEnd struct {
	cfg        Config
	parts      server.Parts
	extensions []string
	log        zerolog.Logger
	access     server.Access

	pool      message.BufferPool // of the transport's buffers
	receiving message.ReceiverConfig
	waiting   *replies.Streams

	socket  *listener // from Listen to Run
	options []grpc.ServerOption
	// stopping is closed by Run; new RPCs are rejected from then on.
	stopping chan struct{}
	leave    chan struct{} // closed by Leave
	leaving  chan struct{} // leave until Run has seen it, then nil
	// active counts handlers and the goroutines of streams, which may outlive their handler.
	active panics.WaitGroup
}

// New checks cfg and returns a front end that does not listen yet.
func New(cfg Config, parts server.Parts, log zerolog.Logger) (*FrontEnd, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := parts.Complete(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	leave := make(chan struct{})
	g := &FrontEnd{cfg: cfg, parts: parts, extensions: server.Extensions(), log: log, stopping: make(chan struct{}), leave: leave, leaving: leave}
	g.access, _ = server.NewAccess(restricted(cfg.Restricted), cfg.ForwardPattern) // Validate has checked it
	g.waiting = replies.NewStreams(g.parts.Memory)
	g.receiving = message.ReceiverConfig{MaxBytes: cfg.MaxMessageBytes, Timeout: cfg.ReadTimeout, Pool: &g.pool, Log: log}
	return g, nil
}

// Listen reads the certificates and binds the address. Connections are accepted by Run.
func (g *FrontEnd) Listen() error {
	var err error
	if g.options, err = g.serverOptions(); err != nil {
		return err
	}
	socket, err := connections.Listen(g.cfg.Address, g.cfg.Port, g.cfg.ReusePort, g.cfg.UnixSocket)
	if err != nil {
		return err
	}
	g.socket = newListener(socket, g)
	return nil
}

// Addr returns the address that Listen has bound.
func (g *FrontEnd) Addr() net.Addr { return g.socket.Addr() }

// Run serves until ctx ends. Then it rejects new RPCs, ends streams that have nothing in flight,
// and lets RPCs in flight finish within ExitTimeout. After that it cancels their contexts and
// closes the connections. It returns when all handlers have returned, or with an error that
// gives the number of handlers that a model still blocks.
func (g *FrontEnd) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer g.socket.Close() // it may be closed already
	now := g.serveSocket(life, g.options)
	var left *serving // the server that Leave has replaced
	var err error
	for running := true; running; {
		select {
		case err = <-now.ended:
			err = fmt.Errorf("accept connections: %w", err)
			close(g.stopping)
			now.server.Stop()
			running = false
		case <-g.leaving:
			g.leaving = nil // only Run reads it, once
			left, now = now, g.replace(life, now)
		case <-ctx.Done():
			// Before the wait for active: a handler that starts later sees stopping and rejects the
			// RPC; a handler that has seen it open is counted.
			close(g.stopping)
			g.shutdown(now, left)
			<-now.ended //nolint:errcheck // shutdown has ended it
			running = false
		}
	}
	if left != nil {
		left.server.Stop() // with its connections GracefulStop ends
		<-left.parted
	}
	// This ends loads, which go on without their client. drain waits for handlers that a model
	// blocks, because their goroutines would read the Core after Run has returned.
	cancel()
	return errors.Join(err, g.drain())
}

// serving is one of the library's servers.
type serving struct {
	server *grpc.Server
	// ended receives one value, from Serve or its panic. It is buffered, so that the goroutine
	// ends even if Run no longer receives.
	ended chan error
	// parted is closed when a replaced server has no connections left.
	parted chan struct{}
}

// serveSocket starts a server on the socket.
func (g *FrontEnd) serveSocket(life context.Context, options []grpc.ServerOption) *serving {
	s := &serving{server: grpc.NewServer(options...), ended: make(chan error, 1), parted: make(chan struct{})}
	for _, desc := range g.services(life) {
		s.server.RegisterService(desc, nil)
	}
	panics.Go(g.log, panics.Server, func() { s.ended <- s.server.Serve(lent{g.socket}) }, func(err error) { s.ended <- err })
	return s
}

// leaveAge is the maximum age of connections accepted after Leave: they receive a GOAWAY, too.
const leaveAge = time.Second

// Leave asks clients to go to another server while Run continues to accept connections and serve
// RPCs. Each connection receives a GOAWAY, so its client opens a new one for its next RPC. Leave is
// called once.
func (g *FrontEnd) Leave() { close(g.leave) }

// replace starts a graceful stop of old and returns a server for new connections. The library has
// no other way to send GOAWAY and still accept.
func (g *FrontEnd) replace(life context.Context, old *serving) *serving {
	_ = lent{g.socket}.Close()
	<-old.ended //nolint:errcheck // nothing accepts until the next server starts
	_ = g.socket.setDeadline(time.Time{})
	params := g.keepalive()
	if params.MaxConnectionAge == 0 || params.MaxConnectionAge > leaveAge {
		params.MaxConnectionAge = leaveAge
	}
	next := g.serveSocket(life, append(slices.Clone(g.options), grpc.KeepaliveParams(params))) // bound: options of the server
	panics.Go(g.log, panics.Server, func() {
		defer close(old.parted)
		old.server.GracefulStop()
	}, nil)
	return next
}

// shutdown stops now, and left if it is not nil: gracefully within ExitTimeout, then forcibly.
func (g *FrontEnd) shutdown(now, left *serving) {
	srv := now.server
	timer := time.NewTimer(g.cfg.ExitTimeout)
	defer timer.Stop()
	select {
	case <-g.active.None():
	case <-timer.C:
		srv.Stop()
		return
	}
	// Nothing is in flight, but replies may still have to be written: GracefulStop waits for them.
	// It would also wait for clients that have connected and sent nothing, while Accept continues.
	// So the socket and silent connections are closed first.
	_ = g.socket.Listener.Close()
	g.socket.closeSilent()
	done := make(chan struct{}) // closed by the goroutine
	panics.Go(g.log, panics.Server, func() {
		defer close(done)
		srv.GracefulStop()
		if left != nil {
			<-left.parted
		}
	}, nil)
	select {
	case <-done:
	case <-timer.C:
		srv.Stop() // closes the connections, so GracefulStop returns
		if left != nil {
			left.server.Stop()
		}
		<-done
	}
}

// drain waits for the remaining handlers.
func (g *FrontEnd) drain() error {
	grace := time.NewTimer(connections.CloseGrace)
	defer grace.Stop()
	select {
	case <-g.active.None():
		return nil
	case <-grace.C:
		return fmt.Errorf("%d gRPC handlers are still at work %v after their connections were closed", g.active.Count(), connections.CloseGrace)
	}
}

func (g *FrontEnd) isStopping() bool {
	select {
	case <-g.stopping:
		return true
	default:
		return false
	}
}

// protect calls f and turns a panic into the error that clients see.
func (g *FrontEnd) protect(f func() error) error {
	err := panics.Run(g.log, panics.Request, f)
	var panicked *panics.Error
	if errors.As(err, &panicked) {
		return errPanic
	}
	return err
}

// handler wraps a method: it counts it as active, recovers panics and applies restrictions. While
// the server stops, it rejects RPCs with refusal.
func (g *FrontEnd) handler(group string, refusal error, method func(grpc.ServerStream) error) grpc.StreamHandler {
	refusal = statusOf(refusal)
	return func(_ any, stream grpc.ServerStream) error {
		// Counted before serve checks isStopping, and until everything else is undone.
		g.active.Add()
		defer g.active.Done()
		// The connection is busy while it has an RPC, so that it is not evicted for another one.
		c := callOf(stream.Context())
		if err := c.begin(); err != nil {
			return err
		}
		defer c.end()
		return g.protect(func() error { return g.serve(stream, group, refusal, method) })
	}
}

func (g *FrontEnd) serve(stream grpc.ServerStream, group string, refusal error, method func(grpc.ServerStream) error) error {
	if g.isStopping() {
		return refusal
	}
	if len(g.access.Restrictions) > 0 {
		if err := g.admit(stream.Context(), group); err != nil {
			return err
		}
	}
	err := statusOf(method(stream))
	if err != nil && errors.Is(stream.Context().Err(), context.DeadlineExceeded) {
		// Regardless of the error that lower packages returned.
		return errDeadline
	}
	return g.cutStatus(err)
}
