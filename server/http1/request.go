package http1

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/nereid-serving/nereid/budget"
)

// Request is the head of an HTTP/1.x request and a reader of its body. Its texts are parts of one
// string and may be kept.
type Request struct {
	// Method keeps the client's spelling.
	Method string
	// Fields are the headers, in the client's order.
	Fields []Field
	// Length is the length of the body in bytes; -1 if it is chunked.
	Length int64

	target string // as received, with its query
	// rawPath is the path of the target, without scheme, authority and query.
	rawPath string
	minor   int  // of the version: HTTP/1.minor
	close   bool // the client will send no further request
	body    bodyReader

	// ctx ends when the client has disconnected, life when the server stops waiting for requests in
	// flight.
	ctx, life context.Context
}

// Field is one header in the client's spelling. Trailing is the white space after the value.
type Field struct{ Name, Value, Trailing string }

// Header returns the value of the first header of that name, ignoring case.
func (r *Request) Header(name string) (value string, ok bool) {
	for i := range r.Fields {
		if f := &r.Fields[i]; equalFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}

// Body returns the reader of the body, which reads large parts from the socket without a copy. It
// fails with a *BodyError, with os.ErrDeadlineExceeded if the body comes too slowly, and with other
// errors if the body is malformed or ends early.
func (r *Request) Body() io.Reader { return &r.body }

// Context ends when the client disconnects or the server stops waiting for requests in flight.
func (r *Request) Context() context.Context { return r.ctx }

// Lifetime ends when the server stops waiting for requests in flight, even if the client stays
// connected.
func (r *Request) Lifetime() context.Context { return r.life }

// Holder returns the connection as the holder of the request's charges.
func (r *Request) Holder() *budget.Holder { return &r.body.c.member.Holder }

// Watch cancels the context if the client disconnects before Unwatch. It does nothing unless the
// whole body has been read.
func (r *Request) Watch() { r.body.c.beginWatch() }

// Unwatch must be called before the handler returns.
func (r *Request) Unwatch() { r.body.c.endWatch() }

// Path returns the path of the target in the client's spelling.
func (r *Request) Path() string { return r.rawPath }

// Query returns the target after its first question mark, in the client's spelling.
func (r *Request) Query() string {
	_, query, _ := strings.Cut(r.target, "?")
	return query
}

// headError is the reason why a request cannot be served. The bytes after it on its connection
// cannot be trusted to be another request.
type headError struct {
	status int
	text   string
}

func (e *headError) Error() string { return e.text }

// badHead returns the error of a malformed head.
func badHead(format string, args ...any) error {
	return &headError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// parse reads a head, including its blank line, into r. The error is a *headError: after it the end
// of the body, the purpose of the request or the peer's protocol is in doubt.
func (r *Request) parse(head string) error {
	line, rest, _ := strings.Cut(head, "\r\n")
	if err := r.parseLine(line); err != nil {
		return err
	}
	r.Fields = r.Fields[:0]
	for {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if line == "" {
			break
		}
		field, err := parseField(line)
		if err != nil {
			return err
		}
		r.Fields = append(r.Fields, field) // bound: the lines of a head
	}
	return r.parseFraming()
}

// parseField splits a line of a head or of the trailers. A line that continues another one has no
// name.
func parseField(line string) (Field, error) {
	name, rest, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return Field{}, badHead("header line %.64q has no name", line)
	}
	rest = strings.TrimLeft(rest, " \t")
	value := strings.TrimRight(rest, " \t")
	if at := control(value); at >= 0 {
		return Field{}, badHead("header %.64q has the control character %#x", name, value[at])
	}
	return Field{name, value, rest[len(value):]}, nil
}

// control returns the index of the first control character in text, other than a tab, or -1.
func control(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return i
		}
	}
	return -1
}

func (r *Request) parseLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !isToken(method) {
		return badHead("request line %.64q is not a method, a target and a version", line)
	}
	major, minor, ok := parseHTTPVersion(version)
	switch {
	case !ok:
		return badHead("request line %.64q does not end with a version of HTTP", line)
	case major != 1:
		return &headError{http.StatusHTTPVersionNotSupported, "HTTP/1.0 and HTTP/1.1 are served, not " + version}
	case method == http.MethodConnect:
		return &headError{http.StatusNotImplemented, "the method CONNECT is not served"}
	}
	r.Method, r.target, r.minor = method, target, min(minor, 1)
	return r.parseTarget()
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// parseHTTPVersion reads "HTTP/<digit>.<digit>", in capitals.
func parseHTTPVersion(text string) (major, minor int, ok bool) {
	if len(text) != len("HTTP/1.1") || text[:5] != "HTTP/" || text[6] != '.' || !isDigit(text[5]) || !isDigit(text[7]) {
		return 0, 0, false
	}
	return int(text[5] - '0'), int(text[7] - '0'), true
}

// parseTarget finds the path in the target, which has the origin form or the absolute form
// "http://authority/path". OPTIONS accepts an asterisk. Escapes stay as they are.
func (r *Request) parseTarget() error {
	target := r.target
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return badHead("request target has the control character %#x", c)
		}
	}
	if strings.HasPrefix(target, "/") {
		r.rawPath, _, _ = strings.Cut(target, "?")
		return nil
	}
	if target == "*" && r.Method == http.MethodOptions {
		r.rawPath = target
		return nil
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !equalFold(scheme, "http") && !equalFold(scheme, "https") {
		return badHead("request target %.64q is neither a path nor an http URI", target)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if end == 0 || !isHost(rest[:end]) || strings.IndexByte(rest, '#') >= 0 {
		return badHead("request target %.64q is not an http URI", target)
	}
	r.rawPath, _, _ = strings.Cut(rest[end:], "?")
	if r.rawPath == "" {
		r.rawPath = "/"
	}
	return nil
}

// charset is a set of ASCII characters.
type charset [256]bool

// visibleBut returns the visible ASCII characters except some.
func visibleBut(without string) *charset {
	var set charset
	for c := byte('!'); c <= '~'; c++ {
		set[c] = strings.IndexByte(without, c) < 0
	}
	return &set
}

func (set *charset) all(s string) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

var (
	tokenChars = visibleBut(`"(),/:;<=>?@[\]{}`)
	hostChars  = visibleBut("\"#/<>?@\\^`{|}")
)

// isToken reports whether s can be a method or the name of a header.
func isToken(s string) bool { return s != "" && tokenChars.all(s) }

// isHost reports whether s can be an ASCII host and port, without a user. It does not check names
// and numbers.
func isHost(s string) bool { return hostChars.all(s) }

// equalFold reports whether s and t are equal, ignoring the case of ASCII letters. Unlike
// strings.EqualFold it does not accept the Kelvin sign as a k nor the long s as an s, as no other
// HTTP server does.
func equalFold(s, t string) bool {
	if len(s) != len(t) {
		return false
	}
	for i := range len(s) {
		if s[i] != t[i] && lower(s[i]) != lower(t[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}
