package http1

import (
	"bufio"
	"context"
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

// running runs a server with an account until the test ends, and returns its address. At the end
// nothing may be charged.
func running(t *testing.T, cfg Config, serve func(*Reply, *Request)) (address string, account *budget.Account) {
	t.Helper()
	account = budget.New(budget.Config{Limit: 64 << 20})
	s := NewServer(cfg, account, Handler{Serve: serve}, zerolog.Nop())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := account.Total(); n != 0 {
			t.Errorf("%d bytes are charged at the end", n)
		}
	})
	return socket.Addr().String(), account
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // of a test that hangs
	return c
}

// TestPartialHeadsKeepNobodyOut fills a server with connections that have sent one byte each.
func TestPartialHeadsKeepNobodyOut(t *testing.T) {
	address, _ := running(t, Config{MaxConnections: 4}, echo)
	for range 12 {
		if _, err := dial(t, address).Write([]byte("G")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		c := dial(t, address)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		reply, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			t.Errorf("a whole request beside parts of heads: got status %d, want 200", reply.StatusCode)
		}
	}
}

// TestLargeHeadsAreCharged checks that the head of a request is charged to its connection until the
// reply has been sent, and that a head without room is rejected.
func TestLargeHeadsAreCharged(t *testing.T) {
	var held int64
	address, account := running(t, Config{}, func(w *Reply, r *Request) {
		held = r.Holder().Held(budget.Transport)
		w.Send(http.StatusOK, nil)
	})
	large := "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("a:\r\n", 1800) + "\r\n"
	c := dial(t, address)
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

// TestAHolderCanBeEnded ends a connection as a holder of memory while it serves a request.
func TestAHolderCanBeEnded(t *testing.T) {
	serves := make(chan struct{})
	address, account := running(t, Config{}, func(w *Reply, r *Request) {
		if w.Charge().Take(budget.Replies, 1<<20) != nil {
			t.Error("a mebibyte is refused")
		}
		close(serves)
		<-r.Context().Done()
		w.Send(http.StatusOK, nil)
	})
	c := dial(t, address)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-serves
	account.Holders(func(h *budget.Holder) bool {
		if want := "HTTP connection from " + c.LocalAddr().String(); h.Name() != want || h.Held(budget.Replies) != 1<<20 {
			t.Errorf("got holder %q of %d bytes of replies, want %q", h.Name(), h.Held(budget.Replies), want)
		}
		h.End()
		return true
	})
	if rest, err := io.ReadAll(c); len(rest) > 0 {
		t.Errorf("got %q (%v), want the end of the connection", rest, err)
	}
	testkit.Eventually(t, time.Minute, func() bool { return account.Total() == 0 })
}

// TestUnreadRequestsKeepTheirConnection checks that a connection with input that the server has not
// read yet is not evicted.
func TestUnreadRequestsKeepTheirConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client := dial(t, listener.Addr().String())
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
