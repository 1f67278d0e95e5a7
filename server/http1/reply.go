package http1

import (
	"net/http"
	"strconv"
)

// Reply writes the one reply to a request. A handler sets what is to be in its
// head and sends it whole.
type Reply struct {
	c *conn

	// ContentType is PlainText unless the handler says otherwise.
	ContentType string
	// Extra is one more header; it has no name if there is none.
	Extra Number
	// Coding is that in which the body is sent. The handler has applied it.
	Coding Coding
	// OfferCodings tells the client which codings requests may have.
	OfferCodings bool
	// close ends the connection after the reply.
	close bool
	sent  bool
}

// Number is a header whose value is a whole number.
type Number struct {
	Name  string
	Value int
}

// PlainText is the type of a reply that has been given no other.
const PlainText = "text/plain"

// inlineReply is the longest reply that is put together in one piece. Of longer
// ones the parts are written from where they lie.
const inlineReply = 4 << 10

// Send writes the reply: the body and then the blobs, which are not kept. That
// the client has gone is nothing to tell a handler.
func (w *Reply) Send(status int, body []byte, blobs ...[]byte) {
	c := w.c
	w.sent = true
	size := len(body)
	for _, blob := range blobs {
		size += len(blob)
	}
	r := &c.req
	if !r.body.ended() && (r.body.expects || r.body.broken() || r.body.left > c.server.cfg.MaxDiscardBytes) || c.server.closing.Load() {
		w.close = true
	}
	w.close = w.close || r.close
	b := appendStatusLine(c.out[:0], r.minor, status)
	if w.OfferCodings {
		b = append(b, "Accept-Encoding: gzip, deflate\r\n"...)
	}
	if w.Extra.Name != "" {
		b = strconv.AppendInt(append(append(b, w.Extra.Name...), ": "...), int64(w.Extra.Value), 10)
		b = append(b, "\r\n"...)
	}
	if w.Coding != Identity {
		b = append(append(append(b, "Content-Encoding: "...), encodingNames[w.Coding]...), "\r\n"...)
	}
	b = append(append(append(b, "Content-Type: "...), w.ContentType...), "\r\n"...)
	if size > 0 || r.minor > 0 || !w.close { // Triton leaves it out for all of HTTP/1.0, whose clients then wait
		b = strconv.AppendInt(append(b, "Content-Length: "...), int64(size), 10)
		b = append(b, "\r\n"...)
	}
	switch {
	case w.close && r.minor > 0:
		b = append(b, "Connection: close\r\n"...)
	case !w.close && r.minor == 0:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	b = append(b, "\r\n"...)
	if r.Method == http.MethodHead {
		body, blobs, size = nil, nil, 0
	}
	if size <= inlineReply {
		b = append(b, body...)
		for _, blob := range blobs {
			b = append(b, blob...)
		}
		c.out = b[:0]
		c.write(b)
		return
	}
	c.out = b[:0]
	c.vector = append(append(c.vector[:0], b, body), blobs...)
	c.writeVector()
}

// appendStatusLine appends the first line of a reply.
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
