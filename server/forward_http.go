package server

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/textproto"
	"sort"

	"github.com/nereid-serving/nereid/infer"
)

// connKey finds a request's conn in its context.
type connKey struct{}

// rememberConn is a net/http ConnContext.
func rememberConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// forgetHead is a net/http ConnState: what comes after a connection has become
// idle is the head of the next request.
func forgetHead(c net.Conn, state http.ConnState) {
	if c, ok := c.(*conn); ok && state == http.StateIdle {
		c.forget()
	}
}

// forwardHeaders appends the headers that are to be forwarded to params, spelled
// as the client spelled them and in its order: models look them up by name,
// while net/http knows canonical names only and no order.
func (f *forwarding) forwardHeaders(params []infer.Parameter, r *http.Request) ([]infer.Parameter, error) {
	if f == nil {
		return params, nil
	}
	var err error
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.mu.Lock()
		fields := spelledHeaders(c.head, r)
		c.mu.Unlock()
		if fields != nil {
			for _, h := range fields {
				if params, err = f.appendHeader(params, h.name, h.value); err != nil {
					return params, err
				}
			}
			return params, nil
		}
	}
	names := make([]string, 0, len(r.Header)+1)
	for name := range r.Header {
		names = append(names, name)
	}
	names = append(names, "Host")
	sort.Strings(names)
	for _, name := range names {
		values := r.Header[name]
		if name == "Host" {
			values = []string{r.Host}
		}
		for _, value := range values {
			if params, err = f.appendHeader(params, name, value); err != nil {
				return params, err
			}
		}
	}
	return params, nil
}

type headerField struct{ name, value string }

// spelledHeaders reads the header fields from the remembered head of r, or
// returns nil if what was remembered is not that head, as with pipelining.
func spelledHeaders(head []byte, r *http.Request) []headerField {
	head, _, complete := bytes.Cut(head, []byte("\r\n\r\n"))
	// net/http may have taken the first byte off while the handler before ran.
	line, rest, _ := bytes.Cut(bytes.TrimLeft(head, "\r\n"), []byte("\r\n"))
	want := r.Method + " " + r.RequestURI + " " + r.Proto
	if !complete || string(line) != want && string(line) != want[1:] {
		return nil
	}
	fields := make([]headerField, 0, len(r.Header)+1)
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return nil
		}
		h := headerField{string(name), string(textproto.TrimBytes(value))}
		if key := textproto.CanonicalMIMEHeaderKey(h.name); key != "Host" && key != "Transfer-Encoding" && key != "Trailer" && r.Header[key] == nil {
			return nil
		}
		fields = append(fields, h)
	}
	return fields
}
