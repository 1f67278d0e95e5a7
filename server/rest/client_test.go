package rest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/inference"
)

// result is a reply in comparable form.
type result struct {
	status int
	header http.Header
	body   string
	closes bool // the connection ends after it
}

// String returns the status, the type and the body.
func (r result) String() string {
	return fmt.Sprintf("%d %s %s", r.status, r.header.Get("Content-Type"), r.body)
}

// testConn is a raw client connection.
type testConn struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (s *testServer) connect(t testing.TB) *testConn {
	t.Helper()
	c := s.dial(t)
	return &testConn{Conn: c, t: t, r: bufio.NewReader(c)}
}

func (c *testConn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// receive reads the reply to a request of that method.
func (c *testConn) receive(method string) result {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("read reply: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("read body of reply: %v", err)
	}
	return result{resp.StatusCode, resp.Header, string(body), resp.Close}
}

// wantEnd fails the test unless the server closes the connection without another byte.
func (c *testConn) wantEnd() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); len(b) > 0 {
		c.t.Fatalf("got %q before the end of the connection (%v), want nothing", b, err)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("connection is still open, want it closed")
	}
}

// text assembles a request. Each header is "Name: value".
func text(method, path, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost:8000\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// do sends one request over a new connection.
func (s *testServer) do(t testing.TB, method, path, body string, headers ...string) result {
	t.Helper()
	c := s.connect(t)
	defer func() { _ = c.Close() }()
	c.send(text(method, path, body, headers...))
	return c.receive(method)
}

// infer posts JSON, followed by binary data if there is any.
func (s *testServer) infer(t testing.TB, model, head, data string, headers ...string) result {
	t.Helper()
	if data != "" {
		headers = append(headers, fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head)))
	}
	return s.do(t, "POST", "/v2/models/"+model+"/infer", head+data, headers...)
}

// errorBody returns the body of an error reply.
func errorBody(message string) string {
	return string(jsontext.AppendString([]byte(`{"error":`), message)) + "}"
}
