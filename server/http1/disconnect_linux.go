package http1

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/boundary"
)

// watchAfter is how long a request may run before a timer looks whether its
// client is still there. Most are faster, and cost nothing for it.
const watchAfter = 5 * time.Millisecond

// disconnectWatcher ends a context when the client closes its connection while a request
// runs. It looks at the socket without reading from it; a client that sends more
// requests meanwhile is not watched further.
type disconnectWatcher struct {
	raw    net.Conn
	log    zerolog.Logger
	cancel context.CancelFunc
	timer  *time.Timer
	done   chan struct{} // gets a value when a look that had begun has ended

	mu    sync.Mutex
	armed bool
}

// start begins to watch; stop must be called before the connection is read again.
func (d *disconnectWatcher) start() {
	d.mu.Lock()
	d.armed = true
	d.mu.Unlock()
	if d.timer == nil {
		d.done = make(chan struct{}, 1)
		d.timer = boundary.AfterFunc(d.log, boundary.Connection, watchAfter, d.look, nil)
		return
	}
	d.timer.Reset(watchAfter)
}

// stop ends the watch. It reports whether the read deadline has been changed.
func (d *disconnectWatcher) stop() (changed bool) {
	if d.timer.Stop() {
		return false
	}
	d.mu.Lock()
	d.armed = false
	_ = d.raw.SetReadDeadline(time.Unix(1, 0)) // wakes look
	d.mu.Unlock()
	<-d.done
	return true
}

func (d *disconnectWatcher) look() {
	defer func() { d.done <- struct{}{} }()
	d.mu.Lock()
	armed := d.armed
	if armed {
		_ = d.raw.SetReadDeadline(time.Time{})
	}
	d.mu.Unlock()
	if !armed {
		return
	}
	socket, ok := d.raw.(syscall.Conn)
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
