package http1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/nereid-serving/nereid/server/http1"
)

// TestOnlyClientsThatLeaveAreCanceled runs requests of several connections at once. Some clients
// leave, some requests end early and are followed by others, and the rest get their replies at the
// end. Only the contexts of the clients that have left are canceled.
func TestOnlyClientsThatLeaveAreCanceled(t *testing.T) {
	const clients = 9
	begun := make(chan struct{}, clients)
	finish, canceled := make(chan struct{}), make(chan string, clients)
	address, _ := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		r.Watch()
		defer r.Unwatch()
		text := "done"
		if r.Path() != "/quick" {
			begun <- struct{}{}
			select {
			case <-finish:
			case <-r.Context().Done():
				text = "canceled"
				canceled <- r.Path()
			}
		}
		w.Send(http.StatusOK, []byte(text))
	})
	connections := make([]net.Conn, clients)
	send := func(i int, path string) {
		if _, err := io.WriteString(connections[i], "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(i int) {
		reply, err := http.ReadResponse(bufio.NewReader(connections[i]), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		if text, err := io.ReadAll(reply.Body); err != nil || string(text) != "done" {
			t.Errorf("client %d got %q, %v", i, text, err)
		}
	}
	for i := range connections {
		connections[i] = http1.Dial(t, address)
		send(i, fmt.Sprint("/", i))
		<-begun
	}
	for i := 0; i < clients; i += 3 { // the first, the last but two, and one in between
		if err := connections[i].Close(); err != nil {
			t.Fatal(err)
		}
		if path := <-canceled; path != fmt.Sprint("/", i) {
			t.Errorf("client %d left, and request %s was canceled", i, path)
		}
		connections[i] = http1.Dial(t, address)
		for range 20 {
			send(i, "/quick")
			receive(i)
		}
	}
	close(finish)
	for i := range connections {
		if i%3 != 0 {
			receive(i)
		}
		send(i, "/quick")
		receive(i)
	}
	if len(canceled) > 0 {
		t.Errorf("request %s of a client that has not left was canceled", <-canceled)
	}
}
