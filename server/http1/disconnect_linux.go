package http1

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

// watchAfter is how long a request runs before a timer checks whether its client is still
// connected. Most requests are faster and cost nothing.
const watchAfter = 5 * time.Millisecond

// disconnectWatcher cancels a context when the client closes its connection while a request runs.
// It peeks at the socket without reading. A client that sends further requests meanwhile is no
// longer watched. Through TLS it cannot peek and reads one byte, which belongs to the next request.
type disconnectWatcher struct {
	socket net.Conn
	secure *secureConn // nil without TLS
	log    zerolog.Logger
	cancel context.CancelFunc
	timer  *time.Timer
	done   chan struct{} // receives a value when a look that had begun has ended

	// mu orders the two changes of the read deadline: look removes it only while armed, and stop,
	// which disarms, sets it last. So a look never waits after a stop.
	mu    sync.Mutex
	armed bool

	// Written by look, through TLS; read when it has ended.
	early    [1]byte
	hasEarly bool
}

// start begins to watch. stop must be called before the connection is read again.
func (d *disconnectWatcher) start() {
	d.mu.Lock()
	d.armed = true
	d.mu.Unlock()
	if d.timer == nil {
		d.done = make(chan struct{}, 1)
		d.timer = panics.AfterFunc(d.log, panics.Connection, watchAfter, d.look, nil)
		return
	}
	d.timer.Reset(watchAfter)
}

// stop ends the watch. It reports whether the read deadline has been changed.
func (d *disconnectWatcher) stop() (changed bool) {
	if d.timer.Stop() {
		return false // no look has begun, and none will: the socket is unchanged
	}
	d.mu.Lock()
	d.armed = false
	_ = d.socket.SetReadDeadline(time.Unix(1, 0)) // wakes look
	d.mu.Unlock()
	<-d.done
	return true
}

func (d *disconnectWatcher) look() {
	defer func() { d.done <- struct{}{} }()
	d.mu.Lock()
	armed := d.armed
	if armed {
		_ = d.socket.SetReadDeadline(time.Time{})
	}
	d.mu.Unlock()
	if !armed {
		return
	}
	if d.secure != nil {
		d.readEarly()
		return
	}
	socket, ok := d.socket.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	gone := false
	_ = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		gone = err != nil || n == 0
		return true
	})
	if gone {
		d.cancel()
	}
}

// readEarly waits for a byte of the next request, for the end of the connection, or for the
// deadline by which stop wakes it.
func (d *disconnectWatcher) readEarly() {
	n, err := d.secure.Read(d.early[:])
	d.hasEarly = n > 0
	if late := net.Error(nil); n == 0 && err != nil && (!errors.As(err, &late) || !late.Timeout()) {
		d.cancel()
	}
}

// takeEarly returns a byte of the next request that has been read. The watch must have been
// stopped.
func (d *disconnectWatcher) takeEarly() (b byte, ok bool) {
	ok, d.hasEarly = d.hasEarly, false
	return d.early[0], ok
}
