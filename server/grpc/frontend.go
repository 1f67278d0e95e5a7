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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/grpc/message"
	"github.com/nereid-serving/nereid/server/grpc/replies"
	"github.com/nereid-serving/nereid/server/tracing"
)

// FrontEnd is the gRPC front end. Listen, then Run it once.
type FrontEnd struct {
	cfg         Config
	core        server.Core
	allocate    server.Allocator
	account     *budget.Account
	logging     server.LogControl
	traces      *tracing.Tracer
	regions     *clientshm.Registry
	extensions  []string
	isReplayKey func(value string) bool // nil: requests are not recorded
	log         zerolog.Logger
	access      server.Access

	pool      message.BufferPool // of the transport's buffers
	receiving message.ReceiverConfig
	waiting   *replies.Streams

	socket  *listener // from Listen to Run
	options []grpc.ServerOption
	// stopping is closed, by Run, when new RPCs are refused.
	stopping chan struct{}
	leave    chan struct{} // closed by Leave
	leaving  chan struct{} // leave until Run has seen it, then nil
	// active counts what works for some client: handlers, and the goroutines of
	// streams, which may outlive their handler.
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
	cfg.setDefaults()
	g := &FrontEnd{
		cfg:         cfg,
		core:        parts.Core,
		allocate:    parts.Allocate,
		account:     parts.Memory,
		logging:     parts.Logging,
		traces:      parts.Traces,
		regions:     parts.Regions,
		extensions:  server.Extensions(),
		isReplayKey: parts.IsReplayKey,
		log:         log,
		stopping:    make(chan struct{}),
		leave:       make(chan struct{}),
	}
	g.leaving = g.leave
	g.access, _ = server.NewAccess(restricted(cfg.Restricted), cfg.ForwardPattern) // Validate has tried
	g.waiting = replies.NewStreams(g.account)
	g.receiving = message.ReceiverConfig{MaxBytes: cfg.MaxMessageBytes, Timeout: cfg.ReadTimeout, Pool: &g.pool, Log: log}
	return g, nil
}

// Listen reads the certificates and binds the address. Clients that connect wait
// until Run.
func (g *FrontEnd) Listen() error {
	var err error
	if g.options, err = g.serverOptions(); err != nil {
		return err
	}
	socket, err := connections.Listen(g.cfg.Address, g.cfg.Port, g.cfg.ReusePort)
	if err != nil {
		return err
	}
	g.socket = newListener(socket, g)
	return nil
}

// Addr returns the address that Listen has bound.
func (g *FrontEnd) Addr() net.Addr { return g.socket.Addr() }

// Run serves until ctx ends. Then it refuses new RPCs, ends streams on which
// nothing is in flight, and lets RPCs in flight finish within ExitTimeout; after
// that it ends their contexts and closes the connections. It returns when all
// handlers have returned; an error tells how many have not, because a model
// holds them.
func (g *FrontEnd) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer g.socket.Close() // it may be closed already
	now := g.serveSocket(life, g.options)
	var left *serving // what Leave has replaced
	var err error
	for running := true; running; {
		select {
		case err = <-now.ended:
			err = fmt.Errorf("accept connections: %w", err)
			close(g.stopping)
			now.server.Stop()
			running = false
		case <-g.leaving:
			g.leaving = nil // Run alone reads it, and once
			left, now = now, g.replace(life, now)
		case <-ctx.Done():
			// Before the wait for active: a handler that enters later sees stopping and refuses, and
			// one that has looked before is counted.
			close(g.stopping)
			g.shutdown(now, left)
			<-now.ended //nolint:errcheck // it ends because it was told to
			running = false
		}
	}
	if left != nil {
		left.server.Stop() // with its connections GracefulStop ends
		<-left.parted
	}
	// Work that goes on without its client (loads) ends here; what a model holds is waited for
	// a while, since its goroutines would read the Core after Run has returned.
	cancel()
	return errors.Join(err, g.drain())
}

// serving is one of the library's servers.
type serving struct {
	server *grpc.Server
	// ended gets one value, from Serve or its panic; there is room for it, so the goroutine ends also if
	// Run has stopped listening for it.
	ended chan error
	// parted is closed when a server that has been replaced has no connection any more.
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

// leaveAge is how long a connection lives that was made after Leave: its client is told to go (GOAWAY), too.
const leaveAge = time.Second

// Leave asks the clients to go elsewhere, while Run goes on: connections are accepted and RPCs are served, and each
// connection gets a GOAWAY, with which its client makes another one for its next RPC. It is called once.
func (g *FrontEnd) Leave() { close(g.leave) }

// replace lets the connections of old end with the RPCs that they have, and returns a server for those that come. The
// library has no other way to send GOAWAY and still accept.
func (g *FrontEnd) replace(life context.Context, old *serving) *serving {
	_ = lent{g.socket}.Close()
	<-old.ended //nolint:errcheck // from here on none accepts, until the next server does
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

// shutdown ends now, and left, which may be nil: gracefully within ExitTimeout, else hard.
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
	// Nothing is in flight, but replies may still be on their way to the wire: GracefulStop
	// waits for them. It would also wait for clients that have connected and said nothing, and
	// Accept would go on meanwhile, hence the order: no new connections, none that are silent.
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
		srv.Stop() // closes the connections, with which GracefulStop returns
		if left != nil {
			left.server.Stop()
		}
		<-done
	}
}

// drain waits for the handlers that are left.
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

// protect calls f and makes a panic in it the error that clients see.
func (g *FrontEnd) protect(f func() error) error {
	err := panics.Run(g.log, panics.Request, f)
	var panicked *panics.Error
	if errors.As(err, &panicked) {
		return errPanic
	}
	return err
}

// handler wraps a method: it counts, recovers, and refuses what must not get
// through. refusal is what it says while the server stops.
func (g *FrontEnd) handler(group string, refusal error, method func(grpc.ServerStream) error) grpc.StreamHandler {
	refusal = statusOf(refusal)
	return func(_ any, stream grpc.ServerStream) error {
		// Counted before isStopping is asked, in serve, and until all else is undone.
		g.active.Add()
		defer g.active.Done()
		// Busy, so that the connection is not evicted for another one while it is served.
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
		// Whatever the packages below made of it: the client's clock may be behind ours.
		return status.Error(codes.DeadlineExceeded, "Deadline Exceeded")
	}
	return g.cutStatus(err)
}
