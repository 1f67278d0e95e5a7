package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/connections"
)

// TestLargeHeadsAreCharged checks that the head of a request is charged to its connection until the
// reply has been sent, and that a head that exceeds the available memory is rejected.
func TestLargeHeadsAreCharged(t *testing.T) {
	var held int64
	address, account := Running(t, Config{}, func(w *Reply, r *Request) {
		held = r.Holder().Held(budget.Transport)
		w.Send(http.StatusOK, nil)
	})
	large := "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a:\r\n", 1800) + "\r\n"
	c := Dial(t, address)
	in := bufio.NewReader(c)
	exchange := func(head string) int {
		_, _ = io.WriteString(c, head)
		reply, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		return reply.StatusCode
	}
	exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if held != 0 {
		t.Errorf("a small head: got %d bytes charged besides the connection, want none", held)
	}
	if exchange(large); held < int64(len(large))+1800*fieldBytes {
		t.Errorf("a head of %d bytes with 1800 fields: got %d bytes charged", len(large), held)
	}
	testkit.Eventually(t, time.Minute, func() bool { return account.Used(budget.Transport) == 0 })
	rest := account.Most(budget.Transport)
	if err := account.Take(budget.Transport, rest); err != nil {
		t.Fatal(err)
	}
	defer account.Give(budget.Transport, rest)
	if status := exchange("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); status != http.StatusOK {
		t.Errorf("a small request without memory: got status %d, want 200", status)
	}
	if status := exchange(large); status != http.StatusServiceUnavailable {
		t.Errorf("a large head without memory: got status %d, want 503", status)
	}
}

// TestUnreadRequestsKeepTheirConnection checks that a connection with input that the server has not
// read yet is not evicted.
func TestUnreadRequestsKeepTheirConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client := Dial(t, listener.Addr().String())
	socket, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	c := newConn(&Server{}, socket, t.Context())
	if _, err := client.Write([]byte("G")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() bool { return connections.Unread(socket.(*net.TCPConn)) })
	if c.closeIdle() {
		t.Fatal("a connection with a request that is not read was closed")
	}
	if _, err := socket.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !c.closeIdle() {
		t.Error("an idle connection was not closed")
	}
}

// TestEvictedConnectionsLeaveTheLobby checks that a connection leaves the lobby whether it is
// evicted before it is served, while it waits, or after its wait has timed out.
func TestEvictedConnectionsLeaveTheLobby(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accept := func(idle time.Duration) *conn {
		client := Dial(t, listener.Addr().String())
		t.Cleanup(func() { _ = client.Close() })
		socket, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return newConn(NewServer(Config{IdleTimeout: idle}, nil, Handler{}, zerolog.Nop()), socket, t.Context())
	}
	early := accept(time.Minute)
	if !early.evict() {
		t.Error("a new connection was not evicted")
	}
	early.serve()

	waiting := accept(time.Minute)
	served := make(chan struct{})
	go func() {
		waiting.serve()
		close(served)
	}()
	testkit.Eventually(t, time.Minute, waiting.evict)
	<-served

	late := accept(time.Millisecond)
	late.serve()
	if late.evict() {
		t.Error("a connection that has ended was evicted")
	}
	for name, c := range map[string]*conn{"early": early, "waiting": waiting, "late": late} {
		if n := len(c.server.refused.slots); n != 0 {
			t.Errorf("%s: got %d connections in the lobby, want none", name, n)
		}
	}
}
