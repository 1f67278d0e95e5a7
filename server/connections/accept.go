package connections

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Acceptor accepts connections despite temporary errors: a lack of descriptors or memory, and
// errors of the connection itself.
type Acceptor struct {
	socket net.Listener
	set    *Set
	log    zerolog.Logger
	warned time.Time
}

// Acceptor returns an acceptor of connections for s from socket. One goroutine uses it.
func (s *Set) Acceptor(socket net.Listener, log zerolog.Logger) *Acceptor {
	return &Acceptor{socket: socket, set: s, log: log}
}

// Accept returns the next connection, which has not entered the Set yet. It fails when the socket
// is closed or ctx ends.
func (a *Acceptor) Accept(ctx context.Context) (net.Conn, error) {
	for {
		conn, err := a.socket.Accept()
		if err == nil || !isPassing(err) {
			return conn, err
		}
		// The connection waits in the socket's queue. Room for it is made here, since Enter needs a
		// connection that already has its descriptor.
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			a.set.budget.relieve(a.set)
		}
		if time.Since(a.warned) > 10*time.Second {
			a.warned = time.Now()
			a.log.Warn().Err(err).Msg("accepting connections fails")
		}
		pause := time.NewTimer(acceptPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

// acceptPause is the pause after an error.
const acceptPause = 50 * time.Millisecond

// isPassing reports whether the next connection may be accepted after this error. Errors of
// accept(2) are about a lack of resources or about the one connection, such as a firewall's veto or
// a network that is down. Only an invalid socket ends the service.
func isPassing(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, net.ErrClosed) {
		return false
	}
	return !slices.Contains([]syscall.Errno{syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK}, errno)
}
