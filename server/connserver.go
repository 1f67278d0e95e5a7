package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
)

// closeGrace is how long run waits, after it has closed the connections and
// ended the contexts, for handlers that still wait for a model.
const closeGrace = 2 * time.Second

// connServer accepts connections, counts them and ends them.
type connServer struct {
	cfg    HTTPConfig
	handle func(*reply, *request)
	log    zerolog.Logger

	closing atomic.Bool   // replies end their connections
	fewer   chan struct{} // gets a value when a connection has ended; has room for one

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newConnServer(cfg HTTPConfig, handle func(*reply, *request), log zerolog.Logger) *connServer {
	return &connServer{cfg: cfg, handle: handle, log: log, fewer: make(chan struct{}, 1), open: make(map[*conn]struct{})}
}

// run serves the connections of socket until ctx ends. Then it accepts no more,
// closes the idle ones at once and lets requests in flight finish within
// ExitTimeout; after that it ends their contexts and closes their connections
// too. It returns when all goroutines have ended; an error tells how many have
// not, because a model holds them.
func (s *connServer) run(ctx context.Context, socket net.Listener) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	accepting := make(chan error, 1) // one value, from accept, and then closed
	boundary.Go(s.log, boundary.Server, func() {
		defer close(accepting)
		accepting <- boundary.Run(s.log, boundary.Server, func() error { return s.accept(life, socket) })
	}, nil)
	select {
	case err := <-accepting:
		cancel()
		s.close(true)
		return errors.Join(fmt.Errorf("accept connections: %w", err), s.drain(closeGrace))
	case <-ctx.Done():
	}
	s.closing.Store(true)
	_ = socket.Close()
	for range accepting { // until accept has ended
	}
	s.close(false)
	if s.drain(s.cfg.ExitTimeout) == nil {
		return nil
	}
	cancel()
	s.close(true)
	return s.drain(closeGrace)
}

// accept starts a goroutine for each connection, until the socket is closed. One
// connection too many is told so.
func (s *connServer) accept(life context.Context, socket net.Listener) error {
	var warned time.Time
	for {
		raw, err := socket.Accept()
		switch {
		case err == nil:
		case isPassing(err):
			if time.Since(warned) > 10*time.Second {
				warned = time.Now()
				s.log.Warn().Err(err).Msg("connections are not accepted")
			}
			pause := time.NewTimer(50 * time.Millisecond)
			select {
			case <-pause.C:
			case <-life.Done():
			}
			pause.Stop()
			continue
		default:
			return err
		}
		c := newConn(s, raw, life)
		s.mu.Lock()
		full := len(s.open) >= s.cfg.MaxConnections
		if !full {
			s.open[c] = struct{}{}
		}
		s.mu.Unlock()
		if full {
			c.watch.cancel()
			refuseConn(raw)
			continue
		}
		boundary.Go(s.log, boundary.Connection, func() { s.serve(c) }, func(error) { _ = c.raw.Close() })
	}
}

// serve serves one connection.
func (s *connServer) serve(c *conn) {
	defer s.forget(c)
	c.serve()
}

// isPassing reports whether the next connection may be accepted all the same.
// What accept(2) says may be about a lack of something, or about the one connection,
// which a firewall forbids or whose network has gone; only a socket that is none ends
// the service.
func isPassing(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, net.ErrClosed) {
		return false
	}
	return !slices.Contains([]syscall.Errno{syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK}, errno)
}

// refuseConn replies without waiting: the socket's buffer is empty.
func refuseConn(c net.Conn) {
	const body = `{"error":"server has as many connections as it allows"}`
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = c.Close()
}

func (s *connServer) forget(c *conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	select {
	case s.fewer <- struct{}{}:
	default:
	}
}

// connections returns how many are open.
func (s *connServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// close closes the connections that wait for a request, or all.
func (s *connServer) close(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if c.state.CompareAndSwap(connWaits, connClosing) || all {
			_ = c.raw.Close()
		}
	}
}

// drain waits until all connections have ended, or for the given time.
func (s *connServer) drain(patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for s.connections() > 0 {
		select {
		case <-s.fewer:
		case <-late.C:
			return fmt.Errorf("%d HTTP connections are still served %v after their end was due", s.connections(), patience)
		}
	}
	return nil
}
