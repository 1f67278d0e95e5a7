package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// request is the head of an HTTP/1.x request and a reader of its body. All texts
// are parts of one string, so they may be kept.
type request struct {
	method string
	target string // as it came, with its query
	minor  int    // of the version: HTTP/1.minor
	fields []headerField

	length int64 // of the body, -1 if it is chunked
	close  bool  // the client wants no further request
	body   bodyReader

	// ctx ends when the client has left, life when the server stops waiting for
	// requests in flight.
	ctx, life context.Context
}

// headerField is one header, spelled as the client spelled it.
type headerField struct{ name, value string }

// header returns the value of the first header of that name, in any case.
func (r *request) header(name string) (value string, ok bool) {
	for i := range r.fields {
		if f := &r.fields[i]; len(f.name) == len(name) && strings.EqualFold(f.name, name) {
			return f.value, true
		}
	}
	return "", false
}

// path returns the target without its query and, in the absolute form, without
// scheme and authority. Escapes stay as they are.
func (r *request) path() string {
	p := r.target
	if !strings.HasPrefix(p, "/") {
		if _, rest, ok := strings.Cut(p, "://"); ok {
			p = "/"
			if i := strings.IndexByte(rest, '/'); i >= 0 {
				p = rest[i:]
			}
		}
	}
	if i := strings.IndexByte(p, '?'); i >= 0 {
		p = p[:i]
	}
	return p
}

// parse reads a head, up to and with its blank line, into r. What it refuses
// leaves in doubt where the body ends, or whether the peer speaks HTTP/1.x at all.
func (r *request) parse(head string) error {
	line, rest, _ := strings.Cut(head, "\r\n")
	if err := r.parseLine(line); err != nil {
		return err
	}
	r.fields = r.fields[:0]
	for {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return fmt.Errorf("header line %.64q has no name", line)
		}
		value = strings.Trim(value, " \t")
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return fmt.Errorf("header %.64q has the control character %#x", name, c)
			}
		}
		r.fields = append(r.fields, headerField{name, value})
	}
	return r.parseFraming()
}

func (r *request) parseLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch version {
	case "HTTP/1.1":
		r.minor = 1
	case "HTTP/1.0":
		r.minor = 0
	default:
		return fmt.Errorf("request line %.64q is not one of HTTP/1.x", line)
	}
	if !isToken(method) || target == "" || method == "CONNECT" {
		return fmt.Errorf("request line %.64q has no method or target that is served", line)
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return fmt.Errorf("request target has the control character %#x", c)
		}
	}
	r.method, r.target = method, target
	return nil
}

var errTwoFramings = errors.New("request has both a Content-Length and a Transfer-Encoding")

// parseFraming reads the headers that say where the body ends and whether the
// connection does.
func (r *request) parseFraming() error {
	r.length, r.close = 0, r.minor == 0
	chunked, measured, expects := false, false, false
	for i := range r.fields {
		f := &r.fields[i]
		switch len(f.name) {
		case len("Content-Length"):
			if !strings.EqualFold(f.name, "Content-Length") {
				continue
			}
			n, err := parseLength(f.value)
			if err != nil || measured && n != r.length {
				return fmt.Errorf("Content-Length %.64q is no length, or not the only one", f.value)
			}
			r.length, measured = n, true
		case len("Transfer-Encoding"):
			if !strings.EqualFold(f.name, "Transfer-Encoding") {
				continue
			}
			if chunked || r.minor == 0 || !strings.EqualFold(f.value, "chunked") {
				return fmt.Errorf("Transfer-Encoding %.64q is not understood", f.value)
			}
			chunked = true
		case len("Connection"):
			if strings.EqualFold(f.name, "Connection") {
				r.parseConnection(f.value)
			}
		case len("Expect"):
			if strings.EqualFold(f.name, "Expect") {
				expects = expects || strings.EqualFold(f.value, "100-continue")
			}
		}
	}
	if chunked && measured {
		return errTwoFramings
	}
	if chunked {
		r.length = -1
	}
	r.body.expects = expects && r.minor == 1
	return nil
}

// parseConnection reads a header Connection: a list of words.
func (r *request) parseConnection(list string) {
	for word := range strings.SplitSeq(list, ",") {
		switch word = strings.Trim(word, " \t"); {
		case strings.EqualFold(word, "close"):
			r.close = true
		case r.minor == 0 && strings.EqualFold(word, "keep-alive"):
			r.close = false
		}
	}
}

// parseLength reads a Content-Length: digits alone. One beyond int64 is the
// largest, which no endpoint accepts.
func parseLength(text string) (int64, error) {
	if !allDigits(text) {
		return 0, errors.New("not a number")
	}
	n := int64(0)
	for i := range len(text) {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64, nil
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, nil
}

// isToken reports whether s can be a method or the name of a header.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
