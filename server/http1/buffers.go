package http1

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

const (
	// keptOut bounds the memory of a reply that buffers keep.
	keptOut = 64 << 10
	// keptFields bounds the headers whose memory buffers keep.
	keptFields = 256
)

// buffers are what a connection needs while it serves a request. Most connections wait for one, so that
// a connection borrows them with the first byte of a request and gives them back behind its reply.
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
	free       sync.Pool // of *buffers; the collector takes what lies there for long
}

func (l *lender) take() *buffers {
	if b, ok := l.free.Get().(*buffers); ok {
		return b
	}
	return &buffers{in: make([]byte, l.inputBytes)}
}

// borrow makes b the connection's, which has none. Until giveBack nothing else has b.
func (c *conn) borrow(b *buffers) {
	c.lent = b
	c.buf, c.out, c.vector, c.step, c.req.Fields = b.in, b.out, b.vector, b.step, b.fields
}

// giveBack returns the buffers, if there are any. What they have of the last request and its reply has been
// read and sent: another connection writes over it from now on. Nor does the connection keep the texts
// of a request that has been served.
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

// waiter waits for the first bytes of a request, without a buffer while there are none. It asks the kernel
// no more often than net.Conn.Read does: once, and again when the poller has woken it.
type waiter struct {
	socket syscall.RawConn    // nil: there is none to wait at, as with TLS
	try    func(uintptr) bool // c.tryRead, made once
	err    error              // of the last try
}

func (w *waiter) begin(c *conn) {
	if socket, ok := c.socket.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			w.socket, w.try = raw, c.tryRead
		}
	}
}

// first returns when the connection has buffers with something in them.
func (w *waiter) first(c *conn) error {
	if w.socket == nil {
		c.borrow(c.server.buffers.take())
		return c.fill()
	}
	if err := w.socket.Read(w.try); err != nil {
		return err
	}
	return w.err
}

// tryRead reads if there is something to read, and reports whether the waiting is over.
func (c *conn) tryRead(socket uintptr) bool {
	b := c.server.buffers.take()
	// By package syscall, as net does: the race detector knows of what passes through its sockets.
	n, err := syscall.Read(int(socket), b.in)
	for err == syscall.EINTR {
		n, err = syscall.Read(int(socket), b.in)
	}
	switch {
	case err == nil && n > 0:
		c.borrow(b)
		c.end, c.wait.err = n, nil
		return true
	case err == nil:
		c.wait.err = io.EOF
	case err == syscall.EAGAIN:
		c.server.buffers.free.Put(b)
		return false
	default:
		c.wait.err = os.NewSyscallError("read", err)
	}
	c.server.buffers.free.Put(b)
	return true
}
