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

// Acceptor accepts connections whatever comes between: want of descriptors or
// memory, and what the network says of a connection that is no more.
type Acceptor struct {
	socket net.Listener
	set    *Set
	log    zerolog.Logger
	warned time.Time
}

// Acceptor returns what accepts the connections of s from socket. One goroutine uses it.
func (s *Set) Acceptor(socket net.Listener, log zerolog.Logger) *Acceptor {
	return &Acceptor{socket: socket, set: s, log: log}
}

// Accept returns the next connection, which has not entered the Set yet; an error is
// the end of the socket, or of ctx.
func (a *Acceptor) Accept(ctx context.Context) (net.Conn, error) {
	for {
		conn, err := a.socket.Accept()
		if err == nil || !isPassing(err) {
			return conn, err
		}
		// The connection waits in the socket's queue. Room for it is made here, since Enter,
		// which makes room for others, needs a connection that has its descriptor.
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			a.set.budget.relieve(a.set)
		}
		if time.Since(a.warned) > 10*time.Second {
			a.warned = time.Now()
			a.log.Warn().Err(err).Msg("connections are not accepted")
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

// acceptPause is how long nothing is accepted after an error.
const acceptPause = 50 * time.Millisecond

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
