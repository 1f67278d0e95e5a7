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

// watchInterval is the time between two checks of a server's watchers. A request that is still
// running at its second check has its socket watched. Most requests are faster.
const watchInterval = 5 * time.Millisecond

// watchers are the watchers of a server that run and do not look at their sockets yet. They share
// one timer: a timer for each request would often wake a thread of the Go runtime.
type watchers struct {
	log zerolog.Logger

	mu          sync.Mutex
	first, last *disconnectWatcher // in the order of start
	checks      uint64
	timer       *time.Timer // made by the first start
	running     bool        // a check is due
}

func (w *watchers) enter(d *disconnectWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.entered, d.listed = w.checks, true
	if d.before = w.last; d.before != nil {
		d.before.after = d
	} else {
		w.first = d
	}
	w.last = d
	if w.running {
		return
	}
	w.running = true
	if w.timer == nil {
		w.timer = panics.AfterFunc(w.log, panics.Connection, watchInterval, w.check, nil)
	} else {
		w.timer.Reset(watchInterval)
	}
}

// leave reports whether the watcher has not begun to look.
func (w *watchers) leave(d *disconnectWatcher) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !d.listed {
		return false
	}
	w.removeLocked(d)
	return true
}

func (w *watchers) removeLocked(d *disconnectWatcher) {
	if d.before != nil {
		d.before.after = d.after
	} else {
		w.first = d.after
	}
	if d.after != nil {
		d.after.before = d.before
	} else {
		w.last = d.before
	}
	d.before, d.after, d.listed = nil, nil, false
}

// check starts the looks of the watchers that another check has passed over.
func (w *watchers) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := w.first; d != nil && d.entered < w.checks; d = w.first {
		w.removeLocked(d)
		panics.Go(d.log, panics.Connection, d.look, nil)
	}
	w.checks++
	if w.running = w.first != nil; w.running {
		w.timer.Reset(watchInterval)
	}
}

// disconnectWatcher cancels a context when the client closes its connection while a request runs.
// It peeks at the socket without reading. A client that sends further requests meanwhile is no
// longer watched. Through TLS it cannot peek and reads one byte, which belongs to the next request.
type disconnectWatcher struct {
	socket net.Conn
	secure *secureConn // nil without TLS
	log    zerolog.Logger
	cancel context.CancelFunc
	all    *watchers
	done   chan struct{} // receives a value when a look that had begun has ended

	// Guarded by the mutex of all.
	listed        bool
	entered       uint64 // checks at the start
	before, after *disconnectWatcher

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
	if d.done == nil {
		d.done = make(chan struct{}, 1)
	}
	d.mu.Lock()
	d.armed = true
	d.mu.Unlock()
	d.all.enter(d)
}

// stop ends the watch. It reports whether the read deadline has been changed.
func (d *disconnectWatcher) stop() (changed bool) {
	if d.all.leave(d) {
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
