package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/connections"
)

const (
	// writeStep is how much a client must read within one write timeout.
	writeStep = 1 << 20
	// paceStep is how much of a body may come under the deadline of the request's head.
	paceStep = 64 << 10
	// directRead is the least that is read from the socket directly into the caller's memory.
	directRead = 1 << 10
	// lingerTime is how long a connection that ends with unread input waits for its client to read
	// the last reply.
	lingerTime = 500 * time.Millisecond
)

var (
	errBareLF  = badHead("a line ends without a carriage return")
	errClosing = errors.New("server is shutting down")
)

// States of a conn. The goroutine of serve changes them, and closeIdle those of a conn that waits.
const (
	connWaits   int32 = 1 // for the head of a request, or the rest of it; all input has been looked at
	connReads   int32 = 2 // the head; not closed, since it may be complete
	connServes  int32 = 3
	connJudged  int32 = 4 // another goroutine decides between connWaits and the next two, at once
	connClosing int32 = 5
	connEvicted int32 = 6 // and is in the lobby
)

// conn serves the requests of one connection, one after another. Everything but
// state belongs to the goroutine of serve.
type conn struct {
	server  *Server
	socket  net.Conn    // usually TCP
	raw     net.Conn    // the socket, or secure
	secure  *secureConn // nil without TLS
	state   atomic.Int32
	member  connections.Member
	charge  budget.Charge  // of the current request, from its head to its reply
	charged *budget.Charge // &charge, or nil if nothing is charged

	// The borrowed buffers and their parts, nil while the connection waits for a request. None of
	// these fields may be used then, nor req.Fields.
	lent       *buffers
	buf        []byte // input; buf[start:end] has not been consumed yet
	start, end int
	out        []byte   // head of the reply
	vector     [][]byte // parts of the reply
	step       net.Buffers
	unsent     []byte // the rest of a write
	unsentErr  error
	wait       waiter            // for the next request
	req        Request           // the current one
	reply      Reply             // to it
	watch      disconnectWatcher // detects that the client disconnects meanwhile
	watched    bool

	readDeadline, writeDeadline time.Time // as last set
	timed                       bool      // the request has its read deadline
	// A body beyond its first paceStep must keep up with the least rate.
	bodyBegan time.Time
	bodyRead  int64
}

func newConn(s *Server, raw net.Conn, life context.Context) *conn {
	c := &conn{server: s, socket: raw, raw: raw}
	if s.cfg.TLS != nil {
		c.secure = newSecureConn(raw, s.cfg.TLS)
		c.raw = c.secure
	} else {
		c.wait.begin(c)
	}
	c.state.Store(connWaits)
	c.member.Close = c.evict
	c.member.Holder.Name, c.member.Holder.End = c.name, c.cut
	if s.account != nil {
		c.charge = budget.Charge{Account: s.account, Holder: &c.member.Holder}
		c.charged = &c.charge
	}
	c.req.ctx, c.watch.cancel = context.WithCancel(life)
	c.req.life = life
	c.req.body.c, c.reply.c = c, c
	c.watch.socket, c.watch.secure, c.watch.log, c.watch.all = raw, c.secure, s.log, &s.watchers
	return c
}

// serve returns when the connection has ended.
func (c *conn) serve() {
	// An eviction may come at any time until here, also after an error.
	defer func() {
		if !c.ends() {
			c.server.refuseRequest(c.socket, false)
		}
	}()
	defer c.charged.Settle()
	defer c.giveBack()
	defer c.watch.cancel()
	if c.secure != nil {
		if err := c.secure.begin(c.server.cfg.HeaderTimeout); err != nil {
			c.server.log.Debug().Err(err).Msg("connection ended before its first request")
			if isPlain(err) {
				c.raw, c.secure = c.socket, nil
				c.borrow(c.server.buffers.take())
				c.refuse(errPlain)
			}
			_ = c.socket.Close()
			return
		}
	}
	for {
		head, err := c.readHead()
		if err == nil {
			err = c.req.parse(head)
		}
		if err != nil {
			if c.state.Load() == connEvicted {
				return
			}
			c.server.log.Debug().Err(err).Msg("connection ended")
			c.refuse(err)
			_ = c.raw.Close()
			return
		}
		if !c.serveRequest() {
			return
		}
	}
}

// closeIdle closes the connection unless it has a request in any state: served, or read but not yet
// looked at, or unread in the socket.
func (c *conn) closeIdle() bool {
	if !c.judge() {
		return false
	}
	c.shut()
	return true
}

// evict is closeIdle to make room for another connection. Without TLS the connection goes to the
// lobby, if it has room, because the client's next request may be under way.
func (c *conn) evict() bool {
	if !c.judge() {
		return false
	}
	if c.server.cfg.TLS == nil && c.server.refused.enter(c.socket) {
		c.state.Store(connEvicted)
	} else {
		c.shut()
	}
	return true
}

// shut closes a connection that has been judged.
func (c *conn) shut() {
	c.state.Store(connClosing)
	_ = c.socket.Close() // without TLS's close message, which might wait for the client
}

// judge reports whether the connection has no request. Then it is connJudged, and the caller stores
// its next state.
func (c *conn) judge() bool {
	if !c.state.CompareAndSwap(connWaits, connJudged) {
		return false
	}
	if socket, ok := c.socket.(syscall.Conn); ok && connections.Unread(socket) {
		c.state.Store(connWaits)
		return false
	}
	return true
}

// name names the connection as a holder of memory.
func (c *conn) name() string { return "HTTP connection from " + connections.Client(c.socket) }

// cut ends the connection and its request.
func (c *conn) cut() {
	_ = c.socket.Close()
	c.watch.cancel()
}

// refuse replies to an invalid head. Other errors end the connection without a reply.
func (c *conn) refuse(err error) {
	var head *headError
	if !errors.As(err, &head) {
		return
	}
	c.req.Method, c.req.minor = "", 1
	c.req.body.expects, c.req.body.err = false, io.EOF
	c.refuseWith(head.status, head.text)
	c.linger()
}

// refuseWith replies with an error and ends the connection.
func (c *conn) refuseWith(status int, text string) {
	c.reply = Reply{c: c, ContentType: PlainText, close: true}
	c.reply.Send(status, c.server.errorBody(text))
}

// serveRequest reports whether another request may follow.
func (c *conn) serveRequest() bool {
	c.req.body.begin(c.req.Length)
	c.bodyRead, c.bodyBegan = 0, time.Time{}
	c.reply = Reply{c: c, ContentType: PlainText}
	c.handle()
	c.charged.Settle()
	if !c.reply.close && c.req.body.discard(c.server.cfg.MaxDiscardBytes) {
		c.member.Replied()
		if c.end > c.start {
			c.state.Store(connReads)
			return true
		}
		if c.awaits() {
			return true
		}
	}
	if !c.req.body.ended() || c.end > c.start {
		c.linger()
	}
	_ = c.raw.Close()
	return false
}

// handle calls the handler. A panic in it, or a fault in memory that a client has truncated, fails
// that request alone. A reply that has begun is cut off, which its client sees by the missing end.
func (c *conn) handle() {
	defer func() {
		if cause := recover(); cause != nil {
			log := c.server.log.With().Str("request", c.req.Method+" "+c.req.Path()).Logger()
			_ = panics.Caught(log, panics.Request, cause)
			c.reply.close = true
			if c.reply.state <= replyHeld {
				c.refuseWith(http.StatusInternalServerError, "internal error while serving the request")
			}
		}
	}()
	c.server.front.Serve(&c.reply, &c.req)
	if c.reply.state != replySent {
		panic("the reply was not sent completely")
	}
}

// linger ends the connection's output and gives the client a little time to read it: a close with
// unread input would discard it.
func (c *conn) linger() {
	if !endOutput(c.raw) {
		return
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	for {
		if _, err := c.raw.Read(c.buf); err != nil {
			return
		}
	}
}

// endOutput tells the client that nothing more will come, and reports whether its input can still
// be read.
func endOutput(c net.Conn) bool {
	half, ok := c.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// readHead waits for the head of the next request and returns it with its blank line, as a new
// string, so that the buffer is free for the body. Until the head is complete the connection counts
// as idle: a client that sends only a part keeps nobody out.
func (c *conn) readHead() (string, error) {
	c.end = copy(c.buf, c.buf[c.start:c.end])
	c.start = 0
	if c.end == 0 {
		if err := c.setReadDeadline(c.server.cfg.IdleTimeout); err != nil {
			return "", err
		}
		c.giveBack()
		if err := c.wait.first(c); err != nil {
			return "", err
		}
	}
	c.timed = false
	for line, lines, at := 0, 0, 0; ; {
		n := bytes.IndexByte(c.buf[at:c.end], '\n')
		if n >= 0 {
			at += n
			switch {
			case at == 0 || c.buf[at-1] != '\r':
				return "", errBareLF
			case at == line+1 && line == 0: // blank lines before a request
				c.end = copy(c.buf, c.buf[at+1:c.end])
				at = 0
			case at == line+1:
				c.start = at + 1
				return c.takeRequest(lines)
			default:
				at++
				line = at
				lines++
			}
			continue
		}
		at = c.end
		if c.end == len(c.buf) {
			return "", &headError{http.StatusRequestHeaderFieldsTooLarge,
				fmt.Sprintf("request line and headers have more than %d bytes", len(c.buf))}
		}
		if !c.timed {
			if err := c.setReadDeadline(c.server.cfg.HeaderTimeout); err != nil {
				return "", err
			}
			c.timed = true
		}
		if err := c.fillHead(); err != nil {
			return "", err
		}
	}
}

// awaits begins a wait for input, and reports whether the server goes on.
func (c *conn) awaits() bool {
	c.state.Store(connWaits)
	return !c.server.ending.Load() // after the Store: Server.Run sets it, and then closes waiting connections
}

// reads ends a wait for input, and reports whether the connection is still open.
func (c *conn) reads() bool {
	for !c.state.CompareAndSwap(connWaits, connReads) {
		if c.state.Load() > connJudged {
			return false
		}
		runtime.Gosched()
	}
	return true
}

// ends rules out a later eviction. It returns false if the connection has been evicted already.
func (c *conn) ends() bool {
	for {
		switch state := c.state.Load(); {
		case state == connEvicted:
			return false
		case state == connJudged:
			runtime.Gosched()
		case c.state.CompareAndSwap(state, connClosing):
			return true
		}
	}
}

// takeRequest makes the connection busy and returns the head in its buffer, which has that many
// lines.
func (c *conn) takeRequest(lines int) (string, error) {
	c.state.Store(connServes)
	c.member.Busy()
	if err := c.charged.Take(budget.Transport, requestCost(c.start, lines)-connRequest); err != nil {
		return "", &headError{http.StatusServiceUnavailable, err.Error()}
	}
	if lines > cap(c.req.Fields) {
		c.req.Fields = make([]Field, 0, lines) // bound: charged
	}
	return string(c.buf[:c.start]), nil // bound: charged
}
