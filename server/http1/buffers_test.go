package http1_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/http1"
)

// TestIdleConnectionsHaveNoBuffers checks that connections release their buffers with each reply.
// Otherwise the open connections would hold 128 MiB.
func TestIdleConnectionsHaveNoBuffers(t *testing.T) {
	const connections, headerBytes = 128, 1 << 20
	s := http1.NewServer(http1.Config{MaxHeaderBytes: headerBytes}, nil, http1.Handler{Serve: func(w *http1.Reply, r *http1.Request) {
		host, _ := r.Header("Host")
		w.Send(http.StatusOK, []byte(host))
	}}, zerolog.Nop())
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1) // receives the result of Run
	go func() { done <- s.Run(ctx, socket) }()
	open := make([]net.Conn, connections)
	for i := range open {
		if open[i], err = net.Dial("tcp", socket.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer open[i].Close()
	}
	for _, host := range []string{"first", "second"} {
		for _, conn := range open {
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(body) != host {
				t.Fatalf("got %q and error %v, want %q", body, err, host)
			}
		}
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		runtime.GC() // twice, since pool content outlives one collection
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc < connections*headerBytes/4
	})
	if n := s.Connections(); n != connections {
		t.Errorf("%d connections are open, want all %d", n, connections)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}
