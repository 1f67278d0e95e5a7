package rest_test

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

// result is a reply in a form that can be compared.
type result struct {
	Status int
	Header http.Header
	Body   string
	Closes bool // the connection ends after it
}

// String returns the status, the content type and the body.
func (r result) String() string {
	return fmt.Sprintf("%d %s %s", r.Status, r.Header.Get("Content-Type"), r.Body)
}

// TestConn is a raw client connection.
type TestConn struct {
	net.Conn
	t testing.TB
	R *bufio.Reader
}

func (s *TestServer) Connect(t testing.TB) *TestConn {
	t.Helper()
	c := s.Dial(t)
	return &TestConn{Conn: c, t: t, R: bufio.NewReader(c)}
}

func (c *TestConn) Send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// Receive reads the reply to a request with the given method.
func (c *TestConn) Receive(method string) result {
	c.t.Helper()
	resp, err := http.ReadResponse(c.R, &http.Request{Method: method})
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

// WantEnd fails the test unless the server closes the connection without sending another byte.
func (c *TestConn) WantEnd() {
	c.t.Helper()
	if b, err := io.ReadAll(c.R); len(b) > 0 {
		c.t.Fatalf("got %q before the end of the connection (%v), want nothing", b, err)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("connection is still open, want it closed")
	}
}

// Text assembles a request. Each header is "Name: value".
func Text(method, path, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost:8000\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// Do sends one request over a new connection.
func (s *TestServer) Do(t testing.TB, method, path, body string, headers ...string) result {
	t.Helper()
	c := s.Connect(t)
	defer func() { _ = c.Close() }()
	c.Send(Text(method, path, body, headers...))
	return c.Receive(method)
}

// Infer posts JSON, followed by binary data if there is any.
func (s *TestServer) Infer(t testing.TB, model, head, data string, headers ...string) result {
	t.Helper()
	if data != "" {
		headers = append(headers, fmt.Sprintf("%s: %d", inference.HeaderLengthName, len(head)))
	}
	return s.Do(t, "POST", "/v2/models/"+model+"/infer", head+data, headers...)
}

// ErrorBody returns the body of an error reply.
func ErrorBody(message string) string {
	return string(jsontext.AppendString([]byte(`{"error":`), message)) + "}"
}
