package grpc

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server/connections"
)

// listener closes connections beyond its limit, idle ones first.
type listener struct {
	net.Listener
	members  *connections.Set
	account  *budget.Account
	unacked  time.Duration // a connection whose client confirms nothing ends after this
	acceptor *connections.Acceptor
	front    *FrontEnd
	full     int // bytes of a write behind which more comes

	// mu is taken by the goroutine that accepts, by those that close connections, and by Run.
	// It is held for the map alone, and while silent connections are closed.
	mu   sync.Mutex
	open map[*connection]struct{}
}

const (
	// connCost is what an idle connection takes: goroutines, tables of headers.
	connCost = 48 << 10
	// recordBytes is the length of a full TLS record.
	recordBytes = 16 << 10
)

func newListener(socket net.Listener, g *FrontEnd) *listener {
	l := &listener{
		Listener: socket, unacked: g.cfg.KeepaliveTimeout, open: make(map[*connection]struct{}),
		members: connections.NewSet(g.cfg.Connections, g.cfg.MaxConnections, g.account, connCost), account: g.account, front: g,
	}
	l.full = bufferBytes
	if g.cfg.TLS.Enabled {
		l.full = recordBytes
	}
	l.acceptor = l.members.Acceptor(socket, g.log)
	return l
}

func (l *listener) remove(c *connection) {
	l.members.Leave(&c.member)
	l.mu.Lock()
	delete(l.open, c)
	l.mu.Unlock()
}

// lent is the listener as a server of the library has it, which closes what it served when it ends. The socket
// outlives it: the next server goes on where it stopped. Connections that come in between wait in the socket's queue.
type lent struct{ *listener }

// Accept implements net.Listener. The end of the wait is not temporary: the library would try again.
func (l lent) Accept() (net.Conn, error) {
	conn, err := l.listener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = net.ErrClosed
	}
	return conn, err
}

// Close ends Accept, and leaves the socket open.
func (l lent) Close() error { return l.setDeadline(time.Unix(1, 0)) }

// setDeadline says until when Accept waits; zero is forever.
func (l *listener) setDeadline(t time.Time) error {
	socket, ok := l.Listener.(*net.TCPListener)
	if !ok {
		return l.Listener.Close()
	}
	return socket.SetDeadline(t)
}

// prefaceBytes is the length of what a client of HTTP/2 sends first (RFC 9113, 3.4).
const prefaceBytes = 24

// closeSilent closes the connections whose clients have not even begun to speak:
// the library would wait for them at its end.
func (l *listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.received.Load() < prefaceBytes {
			// The socket, not the connection, whose Close would take mu: the library closes
			// that when it reads the error.
			_ = c.TCPConn.Close()
		}
	}
}

// Accept implements net.Listener. The library ends with most errors, so none but
// the listener's end gets through.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.acceptor.Accept(context.Background())
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		conn := &connection{TCPConn: tcp, listener: l}
		conn.member.Close = conn.closeIdle
		conn.member.Holder.Name = conn.name
		conn.member.Holder.End = conn.cut
		conn.sent.init(conn)
		conn.read, conn.write = conn.readReady, conn.writeReady
		if ok {
			conn.raw, err = tcp.SyscallConn()
		}
		if !ok || err != nil || !l.members.Enter(&conn.member) {
			_ = c.Close()
			continue
		}
		// From here on the connection may be evicted, by any front end, before the library has
		// seen it: then its first read fails.
		l.mu.Lock()
		l.open[conn] = struct{}{} // bound: the connections that are allowed
		l.mu.Unlock()
		// Where the option is refused, the library's pings find such clients, later.
		_ = conn.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.unacked.Milliseconds()))
		})
		return conn, nil
	}
}

// connection is a connection that is counted. The library reads it in one goroutine and
// writes it in another; each RPC tells it of its begin and end, and an eviction may close it at
// any time. What these share is atomic. It offers the library what it else
// finds in a plain connection only: to take a buffer when there is something to
// read, so that an idle connection holds none.
type connection struct {
	*net.TCPConn
	listener *listener
	received atomic.Int64 // bytes
	member   connections.Member
	sent     sentReplies
	rpcs     atomic.Int64 // handlers at work; negative: it is closed for another connection
	waiting  atomic.Bool  // the library has dealt with all it has read, and wants more
	ended    atomic.Int64 // charged for calls whose end is not written yet; far below 0 after Close

	raw  syscall.RawConn
	read func(fd uintptr) bool // readReady, bound once
	// write is writeReady, bound once. Arguments and results of it: there is one writer at a
	// time, the library or the lock of TLS.
	write    func(fd uintptr) bool
	rest     []byte
	writeErr error
	blocked  bool // the client does not read, and a write waits for it
	// Arguments and results of readReady: there is one reader.
	pool mem.BufferPool
	size int
	buf  *[]byte
	n    int
	err  error
}

// clientAddr is the address of a client, by which RPCs find their connection.
type clientAddr struct {
	net.Addr
	conn *connection
}

// begin and end are called by each handler. The counter decides against closeIdle, and the
// member's state follows it: for a moment its Set may see a connection with an RPC as idle, and
// closeIdle refuses; or one without an RPC as busy, and passes over it once.
func (c *connection) begin() {
	if c.rpcs.Add(1) == 1 {
		c.member.Busy()
	}
}

func (c *connection) end() {
	if c.rpcs.Add(-1) == 0 {
		c.member.Replied()
	}
}

// refused notes that a call has had an error in place of a handler. The connection is in use all
// the same.
func (c *connection) refused() {
	if c.rpcs.Load() == 0 {
		c.member.Replied()
	}
}

// name returns the name of the connection in the log and on the status page.
func (c *connection) name() string {
	return "gRPC connection from " + c.TCPConn.RemoteAddr().String()
}

// cut ends the connection even while it is busy: the library finds it closed.
func (c *connection) cut() { _ = c.TCPConn.Close() }

// closeIdle closes the connection unless it has an RPC in any state: unread in the socket, read but
// not processed by the library, or charged, which lasts from its headers until its end is written.
// The exchange is what an RPC that begins at the same moment loses or wins: if it comes later, its
// connection is closed, and the counter stays so far below zero that no later RPC makes it busy.
func (c *connection) closeIdle() bool {
	if !c.waiting.Load() || connections.Unread(c.TCPConn) || c.member.Holder.Held(budget.Transport) > 0 ||
		!c.rpcs.CompareAndSwap(0, math.MinInt32) {
		return false
	}
	_ = c.TCPConn.Close()
	return true
}

// RemoteAddr returns a clientAddr.
func (c *connection) RemoteAddr() net.Addr { return clientAddr{c.TCPConn.RemoteAddr(), c} }

// Close is called by the library, also after an eviction, and maybe again: then remove finds
// that the member has left.
func (c *connection) Close() error {
	c.listener.remove(c)
	c.sent.end()
	if n := c.ended.Swap(math.MinInt64 / 2); n > 0 {
		c.give(n)
	}
	return c.TCPConn.Close()
}

func (c *connection) Read(p []byte) (int, error) {
	c.waiting.Store(true)
	n, err := c.TCPConn.Read(p)
	c.waiting.Store(false)
	c.received.Add(int64(n))
	return n, err
}

// Write writes p whole. While the client does not take it, the buffers of the connection are
// charged.
func (c *connection) Write(p []byte) (int, error) {
	c.rest, c.writeErr = p, nil
	err := c.raw.Write(c.write)
	n := len(p) - len(c.rest)
	c.rest = nil
	if err == nil {
		err = c.writeErr
	}
	if c.blocked {
		c.blocked = false
		_ = c.SetWriteDeadline(time.Time{})
		c.give(blockedCost)
	}
	// The library fills its buffer as long as it has something to write, and TLS its records.
	if err == nil && len(p) < c.listener.full {
		c.flushed()
	}
	return n, err
}

// left keeps the charge of a call that has ended until the library has written its end.
func (c *connection) left(n int64) {
	if c.ended.Add(n) < 0 { // after Close
		c.give(n)
	}
}

// flushed gives back the charges of calls that have ended.
func (c *connection) flushed() {
	for n := c.ended.Load(); n > 0; n = c.ended.Load() {
		if c.ended.CompareAndSwap(n, 0) {
			c.give(n)
		}
	}
}

// writeReady writes until the socket is full; false waits until it has room again. It uses package
// syscall for the reason that readReady has.
func (c *connection) writeReady(fd uintptr) bool {
	for len(c.rest) > 0 {
		n, err := syscall.Write(int(fd), c.rest)
		switch err {
		case nil:
			c.rest = c.rest[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			c.block()
			return false
		default:
			c.writeErr = os.NewSyscallError("write", err)
			return true
		}
	}
	return true
}

const (
	// blockedCost is the memory of two buffers of a connection whose client does not read: the
	// write buffer and the last read buffer.
	blockedCost = 2 * bufferBytes
	// blockedShort is how long that may last where there is no room for it.
	blockedShort = 2 * time.Second
)

func (c *connection) block() {
	if c.blocked {
		return
	}
	c.blocked = true
	if c.take(blockedCost) != nil {
		c.sent.account.Must(budget.Transport, blockedCost)
		_ = c.member.Holder.Hold(budget.Transport, blockedCost) // which has no bound of its own
		_ = c.SetWriteDeadline(time.Now().Add(blockedShort))
	}
}

// take charges n bytes of the transport to the connection.
func (c *connection) take(n int64) error {
	if err := c.member.Holder.Hold(budget.Transport, n); err != nil {
		return err
	}
	err := c.sent.account.Take(budget.Transport, n)
	if err != nil {
		c.member.Holder.Drop(budget.Transport, n)
	}
	return err
}

func (c *connection) give(n int64) {
	c.sent.account.Give(budget.Transport, n)
	c.member.Holder.Drop(budget.Transport, n)
}

// ReadOnReady waits until there is something to read and only then takes a
// buffer of the given size from pool to read into.
func (c *connection) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.pool, c.size, c.buf, c.n, c.err = pool, size, nil, 0, nil
	c.waiting.Store(true)
	waitErr := c.raw.Read(c.read)
	c.waiting.Store(false)
	buf, n, err := c.buf, c.n, c.err
	c.pool, c.buf = nil, nil
	switch {
	case waitErr != nil:
		err = waitErr
	case err == nil && n == 0:
		err = io.EOF
	}
	if err != nil {
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	c.received.Add(int64(n))
	return buf, n, nil
}

// readReady reads once; false waits until it makes sense to read again. It uses
// package syscall as package net does: the race detector knows no other.
func (c *connection) readReady(fd uintptr) bool {
	if c.buf == nil {
		c.buf = c.pool.Get(c.size)
	}
	for {
		c.n, c.err = syscall.Read(int(fd), *c.buf)
		if c.err != syscall.EINTR {
			break
		}
	}
	if c.err == syscall.EAGAIN {
		c.pool.Put(c.buf)
		c.buf, c.err = nil, nil
		return false
	}
	if c.err != nil {
		c.n = 0
	}
	return true
}

// connectionOf returns the connection of a context of the library.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(clientAddr); ok {
			return a.conn
		}
	}
	return nil
}
