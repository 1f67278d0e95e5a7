package logs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

// Console is the standard output or the standard error output of the server. It receives the
// server's own lines and those of models. Each Write is written whole and separate from others.
// Write never waits: up to maxUnread bytes of unread text are kept. Text beyond that is dropped and
// counted.
//
// Descriptors stay blocking, because other processes share them. So nothing is written before the
// kernel has room for a piece of it.
type Console struct {
	fd  int // -1: writes go to the field to
	to  io.Writer
	Log *zerolog.Logger // logs the number of dropped lines once there is room again

	mu       sync.Mutex
	unread   []byte
	draining bool          // a goroutine writes the kept bytes
	idle     chan struct{} // closed when that goroutine has ended; each has its own
	broken   bool          // the reader is gone
	dropped  int           // lines
	status   string        // the status line below all other lines; may be ""
}

const (
	maxUnread = 1 << 20 // bytes
	// pieceSize is the number of bytes that a writable pipe accepts without blocking.
	pieceSize = 4096
	// consolePatience limits how long shutdown waits for a reader.
	consolePatience = time.Second
)

// NewConsoles returns the consoles of standard output and standard error. They are the same if both
// lead to the same file, where pieces of long lines would mix.
func NewConsoles(stdout, stderr io.Writer) (out, err *Console) {
	out, err = newConsole(stdout), newConsole(stderr)
	if out.fd >= 0 && err.fd >= 0 {
		var a, b unix.Stat_t
		if unix.Fstat(out.fd, &a) == nil && unix.Fstat(err.fd, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino {
			return out, out
		}
	}
	return out, err
}

func newConsole(to io.Writer) *Console {
	c := &Console{fd: -1, to: to}
	if file, ok := to.(*os.File); ok {
		// Fd would make the descriptor blocking.
		if raw, err := file.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { c.fd = int(fd) })
		}
	}
	return c
}

// Write implements io.Writer.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return c.to.Write(p)
	}
	c.putLocked(c.underStatusLocked(p))
	return len(p), nil
}

// putLocked writes p to a descriptor. It keeps or drops the bytes that do not fit.
func (c *Console) putLocked(p []byte) {
	rest := p
	if !c.draining {
		rest = c.writeLocked(p)
	}
	switch {
	case len(rest) == 0 || c.broken:
	case len(rest) == len(p) && len(c.unread)+len(p) > maxUnread:
		c.dropped += bytes.Count(p, []byte("\n"))
	default:
		c.unread = append(c.unread, rest...)
		if !c.draining {
			c.draining = true
			c.idle = make(chan struct{})
			panics.Go(zerolog.Nop(), panics.Server, c.drain, nil)
		}
	}
}

// writeLocked writes as much as the kernel has room for, and returns the rest.
func (c *Console) writeLocked(p []byte) []byte {
	for len(p) > 0 && !c.broken && c.writable(0) {
		n, err := unix.Write(c.fd, p[:min(len(p), pieceSize)])
		switch {
		case err == nil:
			p = p[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return p
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EBADF):
			c.broken = true
		default:
			return nil // perhaps a full disk: this text is lost, and the next line is tried again
		}
	}
	return p
}

// writable waits for room, for at most the given number of milliseconds.
func (c *Console) writable(wait int) bool {
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, wait)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// drain writes the kept bytes as the reader takes them, until none are left.
func (c *Console) drain() {
	for {
		// The lock is not held while there is no room.
		room := c.writable(100)
		c.mu.Lock()
		if room {
			c.unread = append(c.unread[:0], c.writeLocked(c.unread)...)
		}
		if c.broken {
			c.unread = nil
		}
		if len(c.unread) > 0 {
			c.mu.Unlock()
			continue
		}
		dropped := c.dropped
		c.dropped = 0
		if dropped == 0 || c.broken || c.Log == nil {
			c.draining = false
			close(c.idle)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.Log.Warn().Int("lines", dropped).Msg("output of the server was dropped because it was not read")
	}
}

// Flush waits until everything has been read, for consolePatience at most.
func (c *Console) Flush() {
	c.mu.Lock()
	idle, draining := c.idle, c.draining
	c.mu.Unlock()
	if !draining {
		return
	}
	select {
	case <-idle:
	case <-time.After(consolePatience):
	}
}
