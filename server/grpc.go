package server

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
)

// GRPC is the front end for the KServe protocol v2 over gRPC.
//
// Lives: NewGRPC, then Listen, then Run, once each.
type GRPC struct {
	cfg     GRPCConfig
	core    Core
	log     zerolog.Logger
	locks   grpcLocks
	forward *regexp.Regexp // nil forwards nothing

	pool    grpcPool
	budget  grpcBudget
	encoder grpcEncoder

	listener net.Listener
	options  []grpc.ServerOption
	// stopping is closed when new requests are refused, by Run.
	stopping chan struct{}
	// active counts what works for some client: handlers, and the goroutines of
	// streams, which may outlive their handler.
	active grpcActive
}

// NewGRPC checks cfg and returns a front end that asks core.
func NewGRPC(cfg GRPCConfig, core Core, log zerolog.Logger) (*GRPC, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure gRPC: %w", err)
	}
	g := &GRPC{cfg: cfg.withDefaults(), core: core, log: log, stopping: make(chan struct{})}
	g.locks, _ = grpcNewLocks(cfg.Restrictions)
	if cfg.ForwardHeaders != "" {
		g.forward = regexp.MustCompile(cfg.ForwardHeaders)
	}
	g.budget.limit = g.cfg.MaxMessageMemory
	g.encoder = grpcEncoder{zeroCopy: cfg.ZeroCopy, pool: &g.pool}
	return g, nil
}

// Listen reads the certificates and takes the port; clients can connect from
// now on, and are served when Run is called.
func (g *GRPC) Listen() error {
	var err error
	if g.options, err = g.serverOptions(); err != nil {
		return err
	}
	address := net.JoinHostPort(g.cfg.Address, strconv.Itoa(max(0, g.cfg.Port)))
	config := net.ListenConfig{}
	if g.cfg.ReusePort {
		config.Control = grpcReusePort
	}
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for gRPC: %w", err)
	}
	g.listener = &grpcListener{Listener: l, limit: int64(g.cfg.MaxConnections), unacked: g.cfg.KeepaliveTimeout}
	return nil
}

// Addr is where Listen listens.
func (g *GRPC) Addr() net.Addr { return g.listener.Addr() }

// Run serves until ctx ends. Then it refuses new requests, gives those in
// flight ExitTimeout, cancels the others, and returns when all handlers have:
// that of a request which a model does not let go of waits for the model.
func (g *GRPC) Run(ctx context.Context) error {
	server := grpc.NewServer(g.options...)
	for _, desc := range g.services() {
		server.RegisterService(desc, nil)
	}
	served := make(chan error, 1) // sent once, by the goroutine that serves
	go func() { served <- server.Serve(g.listener) }()

	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve gRPC: %w", err)
		close(g.stopping)
		server.Stop()
	case <-ctx.Done():
		close(g.stopping)
		g.drain(server)
		<-served
	}
	g.active.wait()
	return err
}

// drain ends server: gracefully within ExitTimeout, else hard.
func (g *GRPC) drain(server *grpc.Server) {
	timer := time.NewTimer(g.cfg.ExitTimeout)
	defer timer.Stop()
	select {
	case <-g.active.none():
	case <-timer.C:
		server.Stop()
		return
	}
	// Nothing is in flight, but answers may still be on their way to the wire.
	done := make(chan struct{}) // closed by the goroutine
	go func() {
		defer close(done)
		server.GracefulStop()
	}()
	select {
	case <-done:
	case <-timer.C:
		server.Stop()
		<-done
	}
}

func (g *GRPC) isStopping() bool {
	select {
	case <-g.stopping:
		return true
	default:
		return false
	}
}

// protect makes a panic of the calling goroutine an error: one of ours, or a
// fault where a client has cut off memory under us.
func (g *GRPC) protect(err *error) {
	if p := recover(); p != nil {
		g.log.Error().Str("error", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("request handler panicked")
		*err = errGRPCPanic
	}
}

// handler wraps a method: it counts, recovers, and refuses what must not get
// through. refusal is what it says while the server stops.
func (g *GRPC) handler(group string, refusal error, method func(grpc.ServerStream) error) grpc.StreamHandler {
	refusal = grpcStatus(refusal)
	return func(_ any, stream grpc.ServerStream) (err error) {
		g.active.enter()
		defer g.active.leave()
		defer g.protect(&err)
		debug.SetPanicOnFault(true) // of this goroutine, which serves one call
		if g.isStopping() {
			return refusal
		}
		if err := g.locks.check(stream.Context(), group); err != nil {
			return err
		}
		return grpcStatus(method(stream))
	}
}

// grpcActive counts goroutines and tells when there is none. Unlike a WaitGroup
// it may be entered while somebody waits.
type grpcActive struct {
	count   atomic.Int64
	mu      sync.Mutex
	waiters []chan struct{} // closed when count has been 0
}

func (a *grpcActive) enter() { a.count.Add(1) }

func (a *grpcActive) leave() {
	if a.count.Add(-1) != 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiters {
		close(w)
	}
	a.waiters = nil
}

// none returns a channel that is closed when nobody is inside.
func (a *grpcActive) none() <-chan struct{} {
	w := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters = append(a.waiters, w)
	if a.count.Load() == 0 {
		a.waiters = a.waiters[:len(a.waiters)-1]
		close(w)
	}
	return w
}

func (a *grpcActive) wait() { <-a.none() }
