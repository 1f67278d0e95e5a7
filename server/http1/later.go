package http1

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/connections"
)

// later is a reply that another goroutine sends, for example the reader of a model's responses.
// Meanwhile the goroutine of serve waits for the next request, so that the reply wakes no
// goroutine of this process.
type later struct {
	open bool // of the goroutine of serve: Later has been called
	// phase says which of the two goroutines does what remains after the reply.
	phase atomic.Int32
	// claimed is set by the goroutine that sends the reply.
	claimed atomic.Bool
	// sent receives one value when the connection belongs to the goroutine of serve again, unless
	// phase was laterReads.
	sent chan struct{}

	// atOnce says that writes do not wait for the client. They leave the rest in conn.unsent.
	atOnce bool
}

// Phases of a reply that another goroutine sends. In the last two the connection belongs to the
// sender, except for its state.
const (
	laterNone    int32 = 0 // the reply has been sent, or is not sent later
	laterHandler int32 = 1 // the handler has not returned
	laterReads   int32 = 2 // the goroutine of serve waits for input
	laterAwaits  int32 = 3 // it has input, and waits for sent
)

// Later lets another goroutine send the reply, and reports whether that is possible. If so, either
// another goroutine calls SendLater, and the handler returns without a reply, or the handler calls
// NotLater. The context of the request ends if the client disconnects meanwhile.
func (w *Reply) Later() bool {
	c := w.c
	l := &c.later
	if c.wait.socket == nil || !c.req.body.ended() || c.start < c.end {
		return false
	}
	if l.sent == nil {
		l.sent = make(chan struct{}, 1)
	}
	l.open = true
	l.claimed.Store(false)
	l.phase.Store(laterHandler)
	return true
}

// NotLater takes Later back: the handler replies.
func (w *Reply) NotLater() {
	w.c.later.phase.Store(laterNone)
	w.c.later.open = false
}

// Sent has a value when the reply has been sent. A handler may wait for that until it returns, but
// does not receive the value.
func (w *Reply) Sent() <-chan struct{} { return w.c.later.sent }

// SendLater calls send, which sends the reply as a handler does, and does not wait for the client. A
// short reply is sent at once, a long one by a new goroutine. SendLater returns false, and does not
// call send, if the handler has panicked.
func (w *Reply) SendLater(short bool, send func()) bool {
	c := w.c
	if !c.later.claimed.CompareAndSwap(false, true) {
		return false
	}
	apart := func(f func()) {
		panics.Go(c.server.log, panics.Connection, func() {
			f()
			c.sentLater()
		}, nil)
	}
	if !short {
		apart(func() { c.guard(yes, send) })
		return true
	}
	c.later.atOnce = true
	c.guard(yes, send)
	c.later.atOnce = false
	if len(c.unsent) > 0 {
		apart(func() { _ = c.write(c.unsent) })
		return true
	}
	c.sentLater()
	return true
}

func yes() bool { return true }

// recall makes the handler, which has panicked, reply after all. It returns false if another
// goroutine has replied.
func (c *conn) recall() bool {
	l := &c.later
	if !l.open {
		return true
	}
	l.open = false
	if l.claimed.CompareAndSwap(false, true) {
		l.phase.Store(laterNone)
		return true
	}
	<-l.sent
	return false
}

// sentLater ends a request whose reply has been sent by another goroutine.
func (c *conn) sentLater() {
	l := &c.later
	if l.phase.CompareAndSwap(laterHandler, laterNone) {
		l.sent <- struct{}{} // its goroutine ends the request
		return
	}
	c.charged.Settle()
	ends := c.reply.close
	if !ends {
		c.member.Replied()
		_ = c.setReadDeadline(c.server.cfg.IdleTimeout)
	}
	c.giveBack()
	// From here on the connection may belong to the goroutine of serve.
	switch {
	case !l.phase.CompareAndSwap(laterReads, laterNone):
		l.phase.Store(laterNone)
		l.sent <- struct{}{}
	case ends:
		c.shut()
	case !c.awaits():
		_ = c.socket.Close()
	}
}

// leaves hands the connection to the goroutine that sends the reply. It returns false if that has
// been sent: the request ends as usual.
func (c *conn) leaves() bool {
	l := &c.later
	if !l.open {
		return false
	}
	l.open = false
	_ = c.setReadDeadline(c.server.cfg.IdleTimeout) // an error comes again when the connection is read
	if l.phase.CompareAndSwap(laterHandler, laterReads) {
		c.overlaps = true
		return true
	}
	<-l.sent
	return false
}

// overlap waits for the next request while another goroutine sends the reply to the last one.
func (c *conn) overlap() error {
	c.overlaps = false
	l, wait := &c.later, &c.wait
	for {
		wait.early = nil
		err := wait.socket.Read(wait.try)
		switch {
		case wait.early != nil:
			return c.takeEarly()
		case err == nil:
			return wait.err
		case errors.Is(err, os.ErrDeadlineExceeded) && l.phase.Load() != laterNone: // a slow model
			if err := c.socket.SetReadDeadline(time.Now().Add(c.server.cfg.IdleTimeout)); err != nil {
				return c.abandon(err)
			}
		default:
			return c.abandon(err)
		}
	}
}

// abandon cancels the request whose reply is to be sent, and waits for the sender.
func (c *conn) abandon(err error) error {
	if l := &c.later; l.phase.CompareAndSwap(laterReads, laterAwaits) {
		c.watch.cancel()
		<-l.sent
	}
	return err
}

// readEarly is tryRead while the reply to the last request may not have been sent. It reports
// whether the wait is over.
func (c *conn) readEarly(socket uintptr) (over, sent bool) {
	l := &c.later
	if !l.phase.CompareAndSwap(laterReads, laterAwaits) {
		return false, true
	}
	// Until the phase changes back the connection does not count as idle. Otherwise closeIdle, which
	// looks for unread bytes, would miss the bytes that are read here.
	b := c.server.buffers.take()
	n, err := connections.ReadSocket(socket, b.in)
	if err == syscall.EAGAIN && l.phase.CompareAndSwap(laterAwaits, laterReads) {
		c.server.buffers.free.Put(b)
		return false, false
	}
	c.wait.early, c.wait.got, c.wait.err = b, max(n, 0), err
	return true, false
}

// takeEarly waits until the reply has been sent, and continues with what readEarly has read.
func (c *conn) takeEarly() error {
	l, b, n, err := &c.later, c.wait.early, c.wait.got, c.wait.err
	c.wait.early = nil
	if n == 0 && err != syscall.EAGAIN { // the client will send no more, or has disconnected
		late := time.NewTimer(watchAfter)
		select {
		case <-l.sent:
		case <-late.C:
			c.watch.cancel()
			<-l.sent
		}
		late.Stop()
		c.server.buffers.free.Put(b)
		return io.EOF
	}
	<-l.sent
	c.borrow(b)
	c.start, c.end = 0, n
	switch {
	case c.reply.close:
		c.linger()
		return errClosing
	case n > 0:
		c.state.Store(connReads)
		return nil
	}
	c.giveBack()
	if !c.awaits() {
		return errClosing
	}
	return c.wait.first(c)
}
