package http1_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/server/connections"
	"github.com/nereid-serving/nereid/server/http1"
)

// TestRefusedRequestsGetTheirReply checks that each request gets 503 while all connections are
// busy, even with a large body and after a flood of silent connections. Silent connections get 503
// too.
func TestRefusedRequestsGetTheirReply(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	address, _ := http1.Running(t, http1.Config{MaxConnections: 1}, func(w *http1.Reply, _ *http1.Request) {
		began <- struct{}{}
		<-release
		w.Send(http.StatusOK, nil)
	})
	busy := http1.Dial(t, address)
	if _, err := io.WriteString(busy, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	for i := range 20 {
		var silent []net.Conn
		for range 2 * http1.LobbySize {
			silent = append(silent, http1.Dial(t, address))
		}
		for _, c := range silent[:http1.LobbySize] { // evicted from the lobby
			if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 503 ") {
				t.Fatalf("a silent client got %q and error %v, want 503", text, err)
			}
		}
		size := i % 4 * 100_000
		reply, err := client.Post("http://"+address, "text/plain", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Errorf("a request of %d bytes: %v", size, err)
			continue
		}
		_ = reply.Body.Close()
		if reply.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("got status %d, want 503", reply.StatusCode)
		}
	}
	close(release)
}

// TestRequestsOfEvictedConnectionsGetAReply checks that a client whose connection is evicted while
// it sends a request gets 503, or its response on a new connection. HTTP clients do not retry a
// POST whose connection ends without a reply.
func TestRequestsOfEvictedConnectionsGetAReply(t *testing.T) {
	address, _ := http1.Running(t, http1.Config{MaxConnections: 1, Connections: &connections.Budget{Settle: 1}}, func(w *http1.Reply, _ *http1.Request) {
		w.Send(http.StatusOK, nil)
	})
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	statuses := map[int]int{}
	failed := 0
	for range 1000 {
		var other sync.WaitGroup
		other.Go(func() { _ = http1.Dial(t, address).Close() })
		reply, err := client.Post("http://"+address, "text/plain", strings.NewReader("x"))
		if err != nil {
			failed++
			t.Log(err)
		} else {
			_ = reply.Body.Close()
			statuses[reply.StatusCode]++
		}
		other.Wait()
	}
	// A request that arrives after its connection has left the lobby may be lost.
	if failed > 10 {
		t.Errorf("%d requests got no reply", failed)
	}
	if ok := statuses[http.StatusOK]; ok == 0 || ok+statuses[http.StatusServiceUnavailable] != 1000-failed {
		t.Errorf("got statuses %v, want 200 and 503", statuses)
	}
}
