package server

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// writeStep is how much a client must take within one write timeout.
const writeStep = 1 << 20

// listener hands out connections that it counts and can close.
type listener struct {
	net.Listener
	maxOpen      int
	writeTimeout time.Duration
	record       int // bytes of each request that a conn remembers, 0 none

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newListener(socket net.Listener, cfg HTTPConfig) *listener {
	return &listener{
		Listener:     socket,
		maxOpen:      cfg.MaxConnections,
		writeTimeout: cfg.WriteTimeout,
		open:         make(map[*conn]struct{}),
	}
}

// Accept returns the next connection. One too many is told so and closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, listener: l, record: l.record}
		l.mu.Lock()
		full := len(l.open) >= l.maxOpen
		if !full {
			l.open[c] = struct{}{}
		}
		l.mu.Unlock()
		if !full {
			return c, nil
		}
		refuseConn(raw)
	}
}

// refuseConn replies without waiting: the socket's buffer is empty.
func refuseConn(c net.Conn) {
	const body = `{"error":"server has as many connections as it allows"}`
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	_ = c.Close()
}

// closeSilent closes the connections on which nothing has ever come. Those that
// have served a request net/http closes itself when it shuts down.
func (l *listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if !c.heard.Load() {
			_ = c.Conn.Close()
		}
	}
}

// conn is a connection whose writes have deadlines of their own, and which can
// remember the head of a request as it was spelled.
type conn struct {
	net.Conn
	listener *listener
	closed   sync.Once
	heard    atomic.Bool  // something has been read
	deadline atomic.Int64 // of writes, in Unix ns

	record int // immutable; the rest belongs to the goroutine that reads
	mu     sync.Mutex
	head   []byte
	full   bool // head holds all that it shall
}

// Read remembers what comes until the head of a request is complete.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	if c.record > 0 && n > 0 {
		c.mu.Lock()
		if !c.full {
			c.head = append(c.head, p[:n]...)
			c.full = len(c.head) >= c.record || bytes.Contains(c.head, []byte("\r\n\r\n"))
		}
		c.mu.Unlock()
	}
	return n, err
}

// forget makes room for the head of the next request.
func (c *conn) forget() {
	c.mu.Lock()
	c.head, c.full = c.head[:0], false
	c.mu.Unlock()
}

// Write gives the client the write timeout for each step anew. A deadline that
// is far enough away is left as it is.
func (c *conn) Write(p []byte) (written int, err error) {
	timeout := c.listener.writeTimeout
	for {
		now := time.Now()
		if c.deadline.Load()-now.UnixNano() < int64(timeout/2) {
			d := now.Add(timeout)
			c.deadline.Store(d.UnixNano())
			if err := c.Conn.SetWriteDeadline(d); err != nil {
				return written, err
			}
		}
		step := p[written:min(len(p), written+writeStep)]
		n, err := c.Conn.Write(step)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// CloseWrite lets net/http end a connection without losing its last reply.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		c.listener.mu.Lock()
		delete(c.listener.open, c)
		c.listener.mu.Unlock()
	})
	return err
}
