package http1

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/nereid-serving/nereid/budget"
)

// Reply writes the reply to a request. A handler sets the fields of the head and sends the reply as
// a whole, by Send, or in pieces: Begin, any number of Continue, End.
type Reply struct {
	c *conn

	// ContentType is PlainText by default.
	ContentType string
	// Extra is an additional header, if it has a name.
	Extra Number
	// Header is another one. Its value has no line breaks.
	Header Field
	// Lines are more headers, each with its line break.
	Lines string
	// Coding is the coding of the body, which the handler has applied.
	Coding Coding
	// OfferCodings tells the client the accepted codings of requests.
	OfferCodings bool
	// close ends the connection after the reply.
	close bool
	gone  bool // nothing more can be written
	state replyState
}

// replyState is the progress of a reply.
type replyState uint8

const (
	replyNone    replyState = iota
	replyHeld               // begun; its head waits for the first piece
	replyChunks             // each piece is a chunk
	replyToClose            // HTTP/1.0: the body ends with the connection
	replySent               // complete
)

// Charge returns the charge of the request and its reply. A handler charges the body of the reply
// before it allocates the body. The connection returns the charge once the reply has been sent. A
// body of at most InlineReply bytes is charged already.
func (w *Reply) Charge() *budget.Charge { return w.c.charged }

// ErrClientGone is the error of Continue once the client has disconnected or has missed the write
// timeout.
var ErrClientGone = errors.New("the client no longer takes the reply")

// Number is a header with a whole number.
type Number struct {
	Name  string
	Value int
}

// PlainText is the default content type.
const PlainText = "text/plain"

// InlineReply is the longest reply that is assembled in one buffer. The parts of longer ones are
// written without a copy.
const InlineReply = 4 << 10

// Send writes the reply: the body and then the blobs, which are not kept. Handlers do not need to
// know whether the client has disconnected.
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
	if size > 0 || r.minor > 0 || !w.close { // Triton omits it for all of HTTP/1.0, whose clients then wait
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

// Begin starts a reply of unknown length, whose body comes in pieces. The head is sent with the
// first piece, or with the end.
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

// Continue sends the next piece of the body, whose parts are not kept, and returns when the
// connection has taken it. After an error nothing more is sent; End is called nevertheless.
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
		return nil // an empty chunk would end the body
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

// End sends the end of a reply in pieces.
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

// decideClose decides whether the connection can serve another request.
func (w *Reply) decideClose() {
	r := &w.c.req
	if !r.body.ended() && (r.body.expects || r.body.broken() || r.body.left > w.c.server.cfg.MaxDiscardBytes) || w.c.server.closing.Load() {
		w.close = true
	}
	w.close = w.close || r.close
}

// appendHead begins a head in the connection's buffer, up to the header that determines the end of
// the body.
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
		text = "Not Allowed" // as in Triton
	}
	b = append(append(b, ' '), text...)
	return append(b, "\r\n"...)
}
