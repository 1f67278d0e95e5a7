package http1

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/server/connections"
)

const (
	// keptOut bounds the reply memory that buffers keep.
	keptOut = 64 << 10
	// keptFields bounds the header memory that buffers keep.
	keptFields = 256
)

// buffers are the buffers of a connection that serves a request. Most connections are idle, so a
// connection borrows buffers with the first byte of a request and returns them after its reply.
type buffers struct {
	in     []byte // MaxHeaderBytes long
	out    []byte
	vector [][]byte
	step   net.Buffers
	fields []Field
}

// lender lends buffers to the connections of one Server. It is safe for concurrent use.
type lender struct {
	inputBytes int       // bound: MaxHeaderBytes
	free       sync.Pool // of *buffers; the garbage collector frees unused ones
}

func (l *lender) take() *buffers {
	if b, ok := l.free.Get().(*buffers); ok {
		return b
	}
	return &buffers{in: make([]byte, l.inputBytes)}
}

// borrow lends b to the connection, which has no buffers. Until giveBack b has no other user.
func (c *conn) borrow(b *buffers) {
	c.lent = b
	c.buf, c.out, c.vector, c.step, c.req.Fields = b.in, b.out, b.vector, b.step, b.fields
}

// giveBack returns the buffers, if the connection has any. Their content of the last request has
// been read and sent: another connection overwrites it from now on. The connection drops the texts
// of the served request, too.
func (c *conn) giveBack() {
	b := c.lent
	if b == nil {
		return
	}
	clear(c.req.Fields)
	b.out, b.vector, b.step, b.fields = c.out, c.vector, c.step, c.req.Fields
	if cap(b.out) > keptOut {
		b.out = nil
	}
	if cap(b.fields) > keptFields {
		b.fields = nil
	}
	c.lent, c.buf, c.start, c.end = nil, nil, 0, 0
	c.out, c.vector, c.step, c.req.Fields = nil, nil, nil, nil
	c.req.Method, c.req.target, c.req.rawPath = "", "", ""
	c.server.buffers.free.Put(b)
}

// waiter waits for the first bytes of a request without holding a buffer. It makes no more system
// calls than net.Conn.Read: one, and another when the poller has woken it.
type waiter struct {
	socket syscall.RawConn    // nil: reads need a buffer, as with TLS
	try    func(uintptr) bool // c.tryRead, made once
	err    error              // of the last try
	write  func(uintptr) bool // c.tryWrite
}

func (w *waiter) begin(c *conn) {
	if socket, ok := c.socket.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			w.socket, w.try, w.write = raw, c.tryRead, c.tryWrite
		}
	}
}

// first returns when the connection has buffers with input.
func (w *waiter) first(c *conn) error {
	if w.socket == nil {
		c.borrow(c.server.buffers.take())
		return c.fillHead()
	}
	if err := w.socket.Read(w.try); err != nil {
		return err
	}
	return w.err
}

// tryRead reads if there is input, and reports whether the wait is over.
func (c *conn) tryRead(socket uintptr) bool {
	if !c.reads() { // before the socket has no more unread bytes, which closeIdle looks for
		// The wait may have set its own deadline after the eviction set the lobby's.
		_ = c.socket.SetReadDeadline(time.Now().Add(lobbyTime))
		c.wait.err = errClosing
		return true
	}
	b := c.server.buffers.take()
	n, err := connections.ReadSocket(socket, b.in)
	switch {
	case err == nil && n > 0:
		c.borrow(b)
		c.end, c.wait.err = n, nil
		return true
	case err == nil:
		c.wait.err = io.EOF
	case err == syscall.EAGAIN:
		c.server.buffers.free.Put(b)
		c.wait.err = errClosing
		return !c.awaits()
	default:
		c.wait.err = os.NewSyscallError("read", err)
	}
	c.server.buffers.free.Put(b)
	return true
}
