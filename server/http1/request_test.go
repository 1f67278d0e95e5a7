package http1

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/server/http1/http1test"
)

func TestParseReadsTheHead(t *testing.T) {
	var r Request
	head := "POST /a?b HTTP/1.1\r\nHost: h\r\nx-Y:\t v w \r\nEmpty:\r\ncontent-LENGTH: 0012\r\nContent-Length: 12\r\nConnection: a, close\r\nExpect: 100-Continue\r\n\r\n"
	if err := r.parse(head); err != nil {
		t.Fatal(err)
	}
	if r.Method != "POST" || r.target != "/a?b" || r.minor != 1 || r.Length != 12 || !r.close || !r.body.expects || len(r.Fields) != 7 {
		t.Errorf("got %+v", r)
	}
	if v, ok := r.Header("X-y"); v != "v w" || !ok || r.Fields[1].Name != "x-Y" {
		t.Errorf("x-Y: got %q, %v", v, ok)
	}
	if v, ok := r.Header("empty"); v != "" || !ok {
		t.Errorf("Empty: got %q, %v", v, ok)
	}
	if _, ok := r.Header("other"); ok {
		t.Error("other: got one")
	}
	if err := r.parse("GET / HTTP/1.0\r\n\r\n"); err != nil || r.Length != 0 || !r.close || r.body.expects || len(r.Fields) != 0 {
		t.Errorf("got %+v, %v; want nothing of the request before", r, err)
	}
	if n, err := parseLength("99999999999999999999"); n != math.MaxInt64 || err != nil {
		t.Errorf("got %d, %v, want the largest", n, err)
	}
}

func TestPathLeavesQueryAndHostOut(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b": "/a/b", "/a?b?c": "/a", "/a%2fb?": "/a%2fb", "http://h:1/a?b": "/a", "http://h": "/", "http://h?/a": "/", "HTTPS://[::1]/a": "/a",
		"/a#b": "/a#b", "/x?a=http://b/c": "/x",
	} {
		var r Request
		if err := r.parse("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil || r.Path() != want {
			t.Errorf("%s: got %s, %v; want %s", target, r.Path(), err, want)
		}
	}
}

// FuzzRequestFraming checks that net/http sees the same method, target, headers and body in each
// accepted request, and the same bytes after it. Otherwise a request could be smuggled past a
// proxy.
func FuzzRequestFraming(f *testing.F) {
	for _, tt := range http1test.Hostile {
		f.Add([]byte(tt.Text + http1test.Get("/next")))
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n\r\nhello world"))
	server := NewServer(Config{MaxHeaderBytes: 4096, MaxChunks: 1000, HeaderTimeout: time.Hour, BodyBytesPerSecond: 1, BodyGrace: time.Hour}, nil, Handler{}, zerolog.Nop())
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := newConn(server, &readConn{r: bytes.NewReader(stream)}, t.Context())
		defer c.watch.cancel()
		head, err := c.readHead()
		if err != nil || c.req.parse(head) != nil {
			return
		}
		r := &c.req
		rest := bufio.NewReaderSize(bytes.NewReader(stream), len(stream)+16)
		want, err := http.ReadRequest(rest)
		if err != nil {
			return // it is stricter about targets
		}
		defer func() { _ = want.Body.Close() }()
		if r.Method != want.Method || r.target != want.RequestURI || want.URL.Path != "" && !strings.HasPrefix(want.URL.EscapedPath(), "/") && r.rawPath != "*" {
			t.Fatalf("got %s %s, want %s %s", r.Method, r.target, want.Method, want.RequestURI)
		}
		for _, field := range r.Fields {
			if name := http.CanonicalHeaderKey(field.Name); want.Header[name] == nil && name != "Host" && name != "Transfer-Encoding" && name != "Trailer" && name != "Content-Length" {
				t.Fatalf("header %q: net/http has none", field.Name)
			}
		}
		if want.Close && !r.close {
			t.Fatal("the connection stays open, where net/http ends it")
		}
		r.body.begin(r.Length)
		body, err := io.ReadAll(&r.body)
		if err != nil {
			return // a body that ends early, or whose chunks are malformed
		}
		theirs, err := io.ReadAll(want.Body)
		if err != nil && bytes.HasPrefix(body, theirs) {
			return // net/http rejects spaces before an extension, and trailers
		}
		if !bytes.Equal(body, theirs) {
			t.Fatalf("body: got %q, want %q (%v)", body, theirs, err)
		}
		behind, _ := io.ReadAll(rest)
		if left := c.end - c.start + c.raw.(*readConn).r.Len(); left != len(behind) {
			t.Fatalf("%d bytes are left, net/http leaves %d", left, len(behind))
		}
	})
}

// readConn is a connection that reads from r and discards writes.
type readConn struct {
	net.Conn
	r *bytes.Reader
}

func (c *readConn) Read(p []byte) (int, error)         { return c.r.Read(p) }
func (c *readConn) SetReadDeadline(time.Time) error    { return nil }
func (c *readConn) Write(p []byte) (int, error)        { return len(p), nil }
func (c *readConn) SetWriteDeadline(t time.Time) error { return nil }
