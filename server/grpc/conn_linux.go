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

// listener bounds the number of connections: it evicts idle ones first.
type listener struct {
	net.Listener
	members  *connections.Set
	account  *budget.Account
	unacked  time.Duration // TCP_USER_TIMEOUT of connections
	acceptor *connections.Acceptor
	front    *FrontEnd
	full     int // size of a write that more writes follow

	// mu guards open. The goroutine that accepts, goroutines that close connections, and Run take
	// it. It is also held while silent connections are closed.
	mu   sync.Mutex
	open map[*connection]struct{}
}

const (
	// connCost is the memory of an idle connection: goroutines, header tables.
	connCost = 48 << 10
	// recordBytes is the length of a full TLS record.
	recordBytes = 16 << 10
)

func newListener(socket net.Listener, g *FrontEnd) *listener {
	l := &listener{
		Listener: socket, unacked: g.cfg.KeepaliveTimeout, open: make(map[*connection]struct{}),
		members: connections.NewSet(g.cfg.Connections, g.cfg.MaxConnections, g.parts.Memory, connCost), account: g.parts.Memory, front: g,
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

// lent is the listener of one of the library's servers. A server closes its listener when it ends,
// but the socket stays open for the next server. New connections wait in the socket's backlog
// meanwhile.
type lent struct{ *listener }

// Accept implements net.Listener. A deadline ends it with net.ErrClosed, because the library
// retries temporary errors.
func (l lent) Accept() (net.Conn, error) {
	conn, err := l.listener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = net.ErrClosed
	}
	return conn, err
}

// Close ends Accept but leaves the socket open.
func (l lent) Close() error { return l.setDeadline(time.Unix(1, 0)) }

// setDeadline sets the deadline of Accept; zero removes it.
func (l *listener) setDeadline(t time.Time) error {
	socket, ok := l.Listener.(interface{ SetDeadline(time.Time) error }) // TCP or Unix
	if !ok {
		return l.Listener.Close()
	}
	return socket.SetDeadline(t)
}

// prefaceBytes is the length of the client's HTTP/2 preface (RFC 9113, 3.4).
const prefaceBytes = 24

// closeSilent closes connections whose clients have not sent a complete preface. The library would
// wait for them when it stops.
func (l *listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.received.Load() < prefaceBytes {
			// Only the socket: the connection's Close would take mu. The library calls it when
			// it reads the error.
			_ = c.socket.Close()
		}
	}
}

// Accept implements net.Listener. Most errors would end the library's server, so Accept returns
// only the listener's end.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.acceptor.Accept(context.Background())
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(socket)
		conn := &connection{socket: tcp, listener: l}
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
		// From here on any front end may evict the connection, even before the library has
		// seen it. Then its first read fails.
		l.mu.Lock()
		l.open[conn] = struct{}{} // bound: the connections that are allowed
		l.mu.Unlock()
		// If the kernel rejects the option, the library's pings detect dead clients later.
		_ = conn.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.unacked.Milliseconds()))
		})
		return conn, nil
	}
}

// socket is a TCP connection or one of a Unix socket.
type socket interface {
	net.Conn
	syscall.Conn
}

// connection is a counted connection. The library reads it in one goroutine and writes it in
// another. Each RPC calls begin and end, and an eviction may close it at any time, so shared fields
// are atomic. ReadOnReady, which the library otherwise uses for plain TCP connections only, takes
// a buffer when there is data to read, so that an idle connection holds none.
type connection struct {
	socket
	listener *listener
	received atomic.Int64 // bytes
	member   connections.Member
	sent     sentReplies
	rpcs     atomic.Int64 // active handlers; negative: evicted
	waiting  atomic.Bool  // the library has processed everything it has read, and waits for more
	refusals atomic.Int64 // calls rejected since a handler has ended
	ended    atomic.Int64 // charge of calls whose end is not written yet; far below 0 after Close

	raw  syscall.RawConn
	read func(fd uintptr) bool // readReady, bound once
	// write is writeReady, bound once. The next four fields are its arguments and results, and
	// belong to the holder of writing: the library's writer, or an eviction.
	write    func(fd uintptr) bool
	writing  sync.Mutex
	rest     []byte
	writeErr error
	blocked  bool // a write waits because the client does not read
	whole    bool // the last write ended with a frame, or a TLS record
	// The arguments and results of readReady. There is one reader.
	pool mem.BufferPool
	size int
	buf  *[]byte
	n    int
	bulk bool // the last read was as long as it could be
	err  error
}

// clientAddr is the address of a client. RPCs find their connection by it.
type clientAddr struct {
	net.Addr
	conn *connection
}

// begin and end are called by each handler. closeIdle relies on the counter alone. The member's
// state lags behind it: for a moment the Set may see a connection with an RPC as idle, and
// closeIdle fails; or a connection without an RPC as busy, and skips it once. begin returns false
// after an eviction: the client has been told that the RPC was not executed.
func (c *connection) begin() bool {
	switch n := c.rpcs.Add(1); {
	case n < 0:
		c.rpcs.Add(-1)
		return false
	case n == 1:
		c.member.Busy()
	}
	return true
}

func (c *connection) end() {
	if c.refusals.Load() > 0 {
		c.refusals.Store(0)
	}
	if c.rpcs.Add(-1) == 0 {
		c.member.Replied()
	}
}

// mostRefused is the number of calls in a row that are rejected for lack of memory before their
// connection is closed. A client that goes on all the same costs others the processor: a backlog of
// thousands of calls outlives the client.
const mostRefused = 1024

// refused records a call that was rejected before its handler. It counts as use of the connection.
func (c *connection) refused() {
	if c.refusals.Add(1) >= mostRefused {
		c.cut()
	}
	if c.rpcs.Load() == 0 {
		c.member.Replied()
	}
}

// name returns the name of the connection in the log and on the status page.
func (c *connection) name() string {
	return "gRPC connection from " + connections.Client(c.socket)
}

// cut closes the connection even while it is busy; the library's next read or write fails.
func (c *connection) cut() { _ = c.socket.Close() }

// closeIdle closes the connection unless it has an RPC in any state: unread in the socket, read but
// not processed by the library, or charged, which lasts from its headers until its end is written.
// The CompareAndSwap decides a race with an RPC that begins at the same moment. If the RPC loses,
// the counter stays far below zero, so that it is not executed, and the client learns from a GOAWAY
// that it may send the RPC again.
func (c *connection) closeIdle() bool {
	if !c.waiting.Load() || connections.Unread(c.socket) || c.member.Holder.Held(budget.Transport) > 0 || !c.writing.TryLock() {
		return false
	}
	defer c.writing.Unlock()
	if !c.rpcs.CompareAndSwap(0, math.MinInt32) {
		return false
	}
	if c.whole && !c.listener.front.cfg.TLS.Enabled { // below TLS no frame can be written
		_ = c.raw.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), goAway) })
	}
	_ = c.socket.Close()
	return true
}

// goAway is a GOAWAY frame without an error (RFC 9113, 6.8). Its last stream is 0: all RPCs that
// were executed have their answers already.
var goAway = []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// RemoteAddr returns a clientAddr.
func (c *connection) RemoteAddr() net.Addr { return clientAddr{c.socket.RemoteAddr(), c} }

// Close is called by the library, also after an eviction, and possibly twice. remove accepts that.
func (c *connection) Close() error {
	c.listener.remove(c)
	c.sent.end()
	if n := c.ended.Swap(math.MinInt64 / 2); n > 0 {
		c.give(n)
	}
	return c.socket.Close()
}

func (c *connection) Read(p []byte) (int, error) {
	c.waiting.Store(true)
	n, err := c.socket.Read(p)
	c.waiting.Store(false)
	c.received.Add(int64(n))
	return n, err
}

// Write writes all of p. While the client does not read, the connection's buffers are charged.
func (c *connection) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.whole = false
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
	// The library fills its buffer while it has more to write, and TLS fills its records.
	if err == nil && len(p) < c.listener.full {
		c.whole = true
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

// writeReady writes until the socket's buffer is full; false waits until it has room again.
func (c *connection) writeReady(fd uintptr) bool {
	for len(c.rest) > 0 {
		n, err := connections.WriteSocket(fd, c.rest)
		switch err {
		case nil:
			c.rest = c.rest[n:]
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
	// blockedCost is the memory of the two buffers that a blocked connection holds: the write
	// buffer and the last read buffer.
	blockedCost = 2 * bufferBytes
	// blockedShort is how long a write may be blocked if the account has no room for blockedCost.
	blockedShort = 2 * time.Second
)

func (c *connection) block() {
	if c.blocked {
		return
	}
	c.blocked = true
	if c.take(blockedCost) != nil {
		c.sent.account.Must(budget.Transport, blockedCost)
		_ = c.member.Holder.Hold(budget.Transport, blockedCost) // the holder has no bound
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

// ReadOnReady waits for data and only then takes a buffer of the given size from pool to read it
// into.
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

// readReady reads once; false waits until the socket is readable.
func (c *connection) readReady(fd uintptr) bool {
	if c.buf == nil {
		c.buf = c.pool.Get(c.size)
	}
	// Small messages are read in short calls, of which the runtime is not told.
	most := len(*c.buf)
	if !c.bulk {
		most = min(most, connections.ShortBytes)
	}
	c.n, c.err = connections.ReadSocket(fd, (*c.buf)[:most])
	c.bulk = c.n >= connections.ShortBytes
	if c.err == syscall.EAGAIN {
		c.pool.Put(c.buf)
		c.buf, c.err = nil, nil
		return false
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
