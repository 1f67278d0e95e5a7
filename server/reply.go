package server

import (
	"net/http"
	"strconv"
)

// reply writes the one reply to a request. A handler sets what is to be in its
// head and sends it whole.
type reply struct {
	c           *conn
	contentType string
	// extra is one more header; it has no name if there is none.
	extra  numberField
	coding contentCoding
	// offerCodings tells the client which codings requests may have.
	offerCodings bool
	// close ends the connection after the reply.
	close bool
	sent  bool
}

// numberField is a header whose value is a whole number.
type numberField struct {
	Name  string
	Value int
}

// plainText is the type of a reply that has been given no other.
const plainText = "text/plain"

// inlineReply is the longest reply that is put together in one piece. Of longer
// ones the parts are written from where they lie.
const inlineReply = 4 << 10

// send writes the reply: the body and then the blobs, which are not kept. That
// the client has gone is nothing to tell a handler.
func (w *reply) send(status int, body []byte, blobs ...[]byte) {
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
	if w.offerCodings {
		b = append(b, "Accept-Encoding: gzip, deflate\r\n"...)
	}
	if w.extra.Name != "" {
		b = strconv.AppendInt(append(append(b, w.extra.Name...), ": "...), int64(w.extra.Value), 10)
		b = append(b, "\r\n"...)
	}
	if w.coding != identity {
		b = append(append(append(b, "Content-Encoding: "...), encodingNames[w.coding]...), "\r\n"...)
	}
	b = append(append(append(b, "Content-Type: "...), w.contentType...), "\r\n"...)
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
	if r.method == http.MethodHead {
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
