package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// TestSecureRequestThatComesEarlyIsWhole checks that the next request is complete although the
// disconnect watcher has read its first byte.
func TestSecureRequestThatComesEarlyIsWhole(t *testing.T) {
	var watch *disconnectWatcher
	paths := make(chan string, 2)
	client, _ := ServedSecurely(t, Config{}, func(w *Reply, r *Request) {
		paths <- r.Path()
		if r.Path() == "/first" {
			watch = &w.c.watch
			r.Watch()
			<-watch.done // the watcher has read the byte and ended
			watch.done <- struct{}{}
			r.Unwatch()
			if r.Context().Err() != nil {
				t.Error("the client has left")
			}
		}
		w.Send(http.StatusOK, []byte(r.Path()))
	})
	if _, err := io.WriteString(client, "GET /first HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if path := <-paths; path != "/first" {
		t.Fatal(path)
	}
	if _, err := io.WriteString(client, "GET /second HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(client)
	for _, want := range []string{"/first", "/second"} {
		reply, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("got %q, %v, want %q", body, err, want)
		}
	}
}

// TestIdleSecureConnectionIsClosedWithoutWaiting checks that closeIdle, which is called with locks
// of all connections held, closes a TLS connection without waiting for its client.
func TestIdleSecureConnectionIsClosedWithoutWaiting(t *testing.T) {
	var c *conn
	client, ended := ServedSecurely(t, Config{}, func(w *Reply, _ *Request) {
		c = w.c
		w.Send(http.StatusOK, nil)
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	testkit.Eventually(t, 10*time.Second, func() bool { return c.state.Load() == connWaits })
	if !c.closeIdle() {
		t.Error("the connection is busy")
	}
	<-ended
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
}
