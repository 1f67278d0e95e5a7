package http1_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/server/http1"
)

// brokenConn panics in Read and signals when it is closed.
type brokenConn struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *brokenConn) Read([]byte) (int, error) { panic("a bug below the head") }

func (c *brokenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// handedListener accepts the connections of a channel.
type handedListener struct {
	conns chan net.Conn // sent to by the test
	done  chan struct{}
	once  sync.Once
}

func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *handedListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestAPanicEndsItsOwnConnection checks that a panic between requests, when no reply is due, closes
// and forgets the connection, and that other connections are served.
func TestAPanicEndsItsOwnConnection(t *testing.T) {
	s := http1.NewServer(http1.Config{}, nil, http1.Handler{Serve: func(w *http1.Reply, _ *http1.Request) { w.Send(http.StatusOK, []byte("here")) }}, zerolog.Nop())
	l := &handedListener{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	before := testkit.Panics(panics.Connection)

	near, far := net.Pipe()
	defer far.Close()
	broken := &brokenConn{Conn: near, closed: make(chan struct{})}
	l.conns <- broken
	<-broken.closed

	server, client := net.Pipe()
	l.conns <- server
	go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "here" {
		t.Errorf("got %q, %v on the next connection, want its reply", body, err)
	}
	_ = client.Close()
	if n := testkit.Panics(panics.Connection); n != before+1 {
		t.Errorf("got %d panics, want 1", n-before)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("got %d connections in the end, want none", n)
	}
}
