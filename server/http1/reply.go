package http1

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
)

// Reply writes the one reply to a request. A handler sets what is to be in its
// head and sends it whole, by Send, or piece by piece: Begin, Continue as often as
// there is more, End.
type Reply struct {
	c *conn

	// ContentType is PlainText unless the handler says otherwise.
	ContentType string
	// Extra is one more header; it has no name if there is none.
	Extra Number
	// Header is another one. Its value has no line ends.
	Header Field
	// Lines are more of them, each with its line end.
	Lines string
	// Coding is that in which the body is sent. The handler has applied it.
	Coding Coding
	// OfferCodings tells the client which codings requests may have.
	OfferCodings bool
	// close ends the connection after the reply.
	close bool
	gone  bool // nothing more can be written
	state replyState
}

// replyState says how much of a reply there is.
type replyState uint8

const (
	replyNone    replyState = iota
	replyHeld               // begun, and its head waits for the first piece
	replyChunks             // each piece is a chunk
	replyToClose            // of HTTP/1.0: the body is what comes before the connection ends
	replySent               // whole
)

// Charge returns the charge of the request and its reply, to which a handler adds the body of the
// reply before it makes the body. The connection gives the charge back once the reply has been sent. A
// body of at most InlineReply bytes is charged already.
func (w *Reply) Charge() *budget.Charge { return w.c.charged }

// ErrClientGone is what Continue returns once the client has left, or takes too long to
// take what was sent.
var ErrClientGone = errors.New("the client no longer takes the reply")

// Number is a header whose value is a whole number.
type Number struct {
	Name  string
	Value int
}

// PlainText is the type of a reply that has been given no other.
const PlainText = "text/plain"

// InlineReply is the longest reply that is put together in one piece. Of longer
// ones the parts are written from where they lie.
const InlineReply = 4 << 10

// Send writes the reply: the body and then the blobs, which are not kept. That
// the client has gone is nothing to tell a handler.
func (w *Reply) Send(status int, body []byte, blobs ...[]byte) {
	c := w.c
	w.state = replySent
	size := len(body)
	for _, blob := range blobs {
		size += len(blob)
	}
	r := &c.req
	w.decideClose()
	b := w.appendHead(status)
	if size > 0 || r.minor > 0 || !w.close { // Triton leaves it out for all of HTTP/1.0, whose clients then wait
		b = strconv.AppendInt(append(b, "Content-Length: "...), int64(size), 10)
		b = append(b, "\r\n"...)
	}
	b = w.appendConnection(b)
	if r.Method == http.MethodHead {
		body, blobs, size = nil, nil, 0
	}
	if size <= InlineReply {
		b = append(b, body...) // bound: InlineReply
		for _, blob := range blobs {
			b = append(b, blob...) // bound: InlineReply
		}
		c.out = b[:0]
		_ = c.write(b)
		return
	}
	c.out = b[:0]
	c.vector = append(append(c.vector[:0], b, body), blobs...) // bound: the parts, which the caller has
	_ = c.writeVector()
}

// Begin settles the head of a reply whose body comes in pieces, of no size that is known.
// The head goes out with the first piece, or with the end.
func (w *Reply) Begin(status int) {
	r := &w.c.req
	w.state = replyHeld
	w.decideClose()
	w.close = w.close || r.minor == 0
	b := w.appendHead(status)
	if r.minor > 0 {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	w.c.out = w.appendConnection(b)
}

// Continue sends the next piece of the body, which is made of parts that are not kept,
// and waits until the connection has taken it. After an error the client gets nothing
// more; End is called all the same.
func (w *Reply) Continue(parts ...[]byte) error {
	c := w.c
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if w.gone {
		return ErrClientGone
	}
	if size == 0 || c.req.Method == http.MethodHead {
		return nil // an empty chunk would be the end
	}
	b := w.takeHead()
	if w.state == replyChunks {
		b = append(strconv.AppendInt(b, int64(size), 16), "\r\n"...)
	}
	if size <= InlineReply {
		for _, part := range parts {
			b = append(b, part...) // bound: InlineReply
		}
		if w.state == replyChunks {
			b = append(b, "\r\n"...)
		}
		c.out = b[:0]
		return c.write(b)
	}
	c.out = b[:0]
	c.vector = append(append(c.vector[:0], b), parts...) // bound: the parts, which the caller has
	if w.state == replyChunks {
		c.vector = append(c.vector, lineEnd) // bound: one more
	}
	return c.writeVector()
}

// End sends the end of a reply that was begun.
func (w *Reply) End() {
	b := w.takeHead()
	if w.state == replyChunks && w.c.req.Method != http.MethodHead {
		b = append(b, "0\r\n\r\n"...)
	}
	w.state = replySent
	w.c.out = b[:0]
	if len(b) > 0 && !w.gone {
		_ = w.c.write(b)
	}
}

var lineEnd = []byte("\r\n")

// takeHead returns the head if it has not been sent yet, and an empty buffer otherwise.
func (w *Reply) takeHead() []byte {
	if w.state != replyHeld {
		return w.c.out[:0]
	}
	w.state = replyChunks
	if w.c.req.minor == 0 {
		w.state = replyToClose
	}
	return w.c.out
}

// decideClose says whether the connection can serve another request.
func (w *Reply) decideClose() {
	r := &w.c.req
	if !r.body.ended() && (r.body.expects || r.body.broken() || r.body.left > w.c.server.cfg.MaxDiscardBytes) || w.c.server.closing.Load() {
		w.close = true
	}
	w.close = w.close || r.close
}

// appendHead begins a head in the connection's buffer, up to what says where the body ends.
//
// bound: names of headers and values of handlers
func (w *Reply) appendHead(status int) []byte {
	b := appendStatusLine(w.c.out[:0], w.c.req.minor, status)
	if w.OfferCodings {
		b = append(b, "Accept-Encoding: gzip, deflate\r\n"...)
	}
	if w.Extra.Name != "" {
		b = strconv.AppendInt(append(append(b, w.Extra.Name...), ": "...), int64(w.Extra.Value), 10)
		b = append(b, "\r\n"...)
	}
	if w.Header.Name != "" {
		b = append(append(append(append(b, w.Header.Name...), ": "...), w.Header.Value...), "\r\n"...)
	}
	b = append(b, w.Lines...)
	if w.Coding != Identity {
		b = append(append(append(b, "Content-Encoding: "...), encodingNames[w.Coding]...), "\r\n"...)
	}
	return append(append(append(b, "Content-Type: "...), w.ContentType...), "\r\n"...)
}

// appendConnection ends a head.
func (w *Reply) appendConnection(b []byte) []byte {
	minor := w.c.req.minor
	switch {
	case w.close && minor > 0:
		b = append(b, "Connection: close\r\n"...)
	case !w.close && minor == 0:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendStatusLine appends the first line of a reply.
//
// bound: names of statuses
func appendStatusLine(b []byte, minor, status int) []byte {
	b = append(b, "HTTP/1."...)
	b = append(b, '0'+byte(minor), ' ')
	b = strconv.AppendInt(b, int64(status), 10)
	text := http.StatusText(status)
	if status == http.StatusMethodNotAllowed {
		text = "Not Allowed" // as Triton has it
	}
	b = append(append(b, ' '), text...)
	return append(b, "\r\n"...)
}
