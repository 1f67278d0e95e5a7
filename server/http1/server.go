package http1

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/connections"
)

// Server accepts, counts and ends connections.
type Server struct {
	cfg     Config
	front   Handler
	account *budget.Account // nil: nothing is charged
	log     zerolog.Logger

	closing atomic.Bool   // replies end their connections
	ending  atomic.Bool   // idle connections end
	fewer   chan struct{} // receives a value when a connection has ended; has room for one
	refused *lobby

	buffers  lender
	watchers watchers
	members  *connections.Set
	// mu guards the set of connections, not the connections. The accepting goroutine adds a conn
	// before the conn's own goroutine begins, which removes it at its end.
	mu   sync.Mutex
	open map[*conn]struct{}
}

const (
	// connStack is the memory of a connection besides its buffer.
	connStack = 8 << 10
	// connRequest is the memory for a small request and its reply, which are not charged
	// separately.
	connRequest = 8 << 10
	// fieldBytes is the size of a Field.
	fieldBytes = 32
)

// requestCost returns the memory for the head of a request, besides the connection's buffer, and
// for the head of the reply with a small body. The reply may repeat parts of the request.
func requestCost(head, lines int) int64 {
	return 2*int64(head) + int64(lines)*fieldBytes + InlineReply
}

// Handler serves the requests of connections.
type Handler struct {
	// Serve serves one request, on the goroutine of its connection, and sends one reply.
	// A panic in it fails that request alone.
	Serve func(*Reply, *Request)
	// ErrorBody returns the text/plain body of an error that is replied without Serve; nil: the
	// text itself.
	ErrorBody func(text string) []byte
}

// NewServer returns a server whose requests front serves. Its connections are charged to account,
// which may be nil.
func NewServer(cfg Config, account *budget.Account, front Handler, log zerolog.Logger) *Server {
	cfg = cfg.WithDefaults()
	cost := int64(cfg.MaxHeaderBytes) + connStack + connRequest
	if cfg.TLS != nil {
		cost += secureCost
	}
	return &Server{
		cfg: cfg, front: front, account: account, log: log, fewer: make(chan struct{}, 1), refused: newLobby(), open: make(map[*conn]struct{}), buffers: lender{inputBytes: cfg.MaxHeaderBytes}, watchers: watchers{log: log},
		members: connections.NewSet(cfg.Connections, cfg.MaxConnections, account, cost),
	}
}

// Run serves the connections of socket until ctx ends. Then it stops accepting and serves the
// existing connections for DrainTime, or until none is left: each ends with its next reply. After
// that it closes idle connections and lets requests in flight finish within ExitTimeout. Finally it
// cancels their contexts and closes their connections. It returns when all goroutines have ended;
// an error counts those that a model still holds.
func (s *Server) Run(ctx context.Context, socket net.Listener) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer s.refused.wait()
	accepting := make(chan error, 1) // one value, from accept, and then closed
	panics.Go(s.log, panics.Server, func() {
		defer close(accepting)
		accepting <- panics.Run(s.log, panics.Server, func() error { return s.accept(life, socket) })
	}, nil)
	select {
	case err := <-accepting:
		cancel()
		s.close(true)
		return errors.Join(fmt.Errorf("accept connections: %w", err), s.drain(connections.CloseGrace))
	case <-ctx.Done():
	}
	// The order matters: replies that are sent from here on end their connections, and when accept
	// has ended no connection is added to the open ones.
	s.closing.Store(true)
	_ = socket.Close()
	for range accepting { // until accept has ended
	}
	began := time.Now()
	if n := s.Connections(); n > 0 && s.cfg.DrainTime > 0 {
		s.log.Info().Msgf("Timeout %d: Found %d HTTP service connections", s.cfg.ExitTimeout.Round(time.Second)/time.Second, n)
		if s.drain(min(s.cfg.DrainTime, s.cfg.ExitTimeout)) == nil {
			return nil
		}
	}
	// A connection stores that it is idle and then loads ending. Here ending is stored and then the
	// idle connections are closed: one of the two sees the other.
	s.ending.Store(true)
	s.close(false)
	if s.drain(s.cfg.ExitTimeout-time.Since(began)) == nil {
		return nil
	}
	cancel()
	s.close(true)
	return s.drain(connections.CloseGrace)
}

// Leave asks clients to reconnect elsewhere while Run goes on: connections are accepted and
// requests are served, and each connection ends with its next reply.
func (s *Server) Leave() { s.closing.Store(true) }

// accept starts a goroutine for each connection, until the socket is closed. A connection beyond
// the limit gets an error.
func (s *Server) accept(life context.Context, socket net.Listener) error {
	a := s.members.Acceptor(socket, s.log)
	for {
		raw, err := a.Accept(life)
		if err != nil {
			return err
		}
		c := newConn(s, raw, life)
		if !s.members.Enter(&c.member) {
			c.watch.cancel()
			s.refuseConn(raw)
			continue
		}
		s.mu.Lock()
		s.open[c] = struct{}{} // bound: the connections that are allowed
		s.mu.Unlock()
		panics.Go(s.log, panics.Connection, func() { s.serve(c) }, func(error) { _ = c.socket.Close() })
	}
}

// serve serves one connection.
func (s *Server) serve(c *conn) {
	defer s.forget(c)
	c.serve()
}

func (s *Server) forget(c *conn) {
	s.members.Leave(&c.member)
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	// After the removal, so that drain, which counts again after each value, sees it. A value that
	// is already there says the same.
	select {
	case s.fewer <- struct{}{}:
	default:
	}
}

func (s *Server) errorBody(text string) []byte {
	if s.front.ErrorBody == nil {
		return []byte(text) // bound: the server's own texts
	}
	return s.front.ErrorBody(text)
}

// ServeConn serves one connection, which the caller has accepted and counted, until it ends.
func (s *Server) ServeConn(life context.Context, raw net.Conn) { newConn(s, raw, life).serve() }

// Connections returns how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// close closes the idle connections, or all.
func (s *Server) close(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if !c.closeIdle() && all {
			_ = c.socket.Close()
		}
	}
}

// drain waits until all connections have ended, or until the time is over.
func (s *Server) drain(patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for s.Connections() > 0 {
		select {
		case <-s.fewer:
		case <-late.C:
			return fmt.Errorf("%d HTTP connections are still served %v after their end was due", s.Connections(), patience)
		}
	}
	return nil
}
