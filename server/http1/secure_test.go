package http1_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/server/http1"
)

// echo replies with the body, in parts of many sizes.
func echo(w *http1.Reply, r *http1.Request) {
	body, err := io.ReadAll(r.Body())
	if err != nil {
		return
	}
	var parts [][]byte
	for n := 1; len(body) > 0; n = n*3 + 1 {
		n = min(n, len(body))
		parts = append(parts, body[:n])
		body = body[n:]
	}
	w.Send(http.StatusOK, nil, parts...)
}

func TestSecureConnectionServesManyRequests(t *testing.T) {
	client, _ := http1.ServedSecurely(t, http1.Config{}, echo)
	in := bufio.NewReader(client)
	for _, size := range []int{1, 5000, 1 << 20, 2} {
		sent := bytes.Repeat([]byte{'a' + byte(size%7)}, size)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost/", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- request.Write(client) }()
		reply, err := http.ReadResponse(in, request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlainRequestIsToldThatTLSIsServed(t *testing.T) {
	for sent, want := range map[string]string{
		"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 56\r\n" +
			"Connection: close\r\n\r\nthis port serves HTTPS, and the request came without TLS",
		"\x80\x80\x80\x80\x80": "", // noise gets a TLS alert or nothing, but no HTTP
	} {
		client, ended := http1.ServedSecurely(t, http1.Config{}, echo)
		socket := client.NetConn()
		if _, err := io.WriteString(socket, sent); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(socket)
		if want != "" && (err != nil || string(got) != want) || want == "" && bytes.Contains(got, []byte("HTTP")) {
			t.Errorf("%q: got %q, %v, want %q", sent, got, err, want)
		}
		_ = socket.Close()
		<-ended
	}
}

// TestSecureClientThatLeavesIsSeen checks that a client's disconnect ends its request, with and
// without a TLS close alert. The alert is bytes on the socket, which must not be taken for another
// request.
func TestSecureClientThatLeavesIsSeen(t *testing.T) {
	for name, leave := range map[string]func(*tls.Conn) error{
		"with a word": (*tls.Conn).Close,
		"without":     func(c *tls.Conn) error { return c.NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			serving, gone := make(chan struct{}), make(chan error, 1)
			client, ended := http1.ServedSecurely(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
				r.Watch()
				close(serving)
				<-r.Context().Done()
				gone <- r.Lifetime().Err()
				r.Unwatch()
				w.Send(http.StatusOK, nil)
			})
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			<-serving
			if err := leave(client); err != nil {
				t.Fatal(err)
			}
			if err := <-gone; err != nil {
				t.Errorf("it was the server that ended: %v", err)
			}
			<-ended
		})
	}
}

// TestSecureClientThatOnlyConnectsIsEnded checks that a TLS server closes connections that send
// nothing, or something other than TLS.
func TestSecureClientThatOnlyConnectsIsEnded(t *testing.T) {
	for name, says := range map[string]string{"nothing": "", "plain HTTP": "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "noise": strings.Repeat("\x16", 600)} {
		t.Run(name, func(t *testing.T) {
			client, ended := http1.ServedSecurely(t, http1.Config{HeaderTimeout: 50 * time.Millisecond}, func(w *http1.Reply, _ *http1.Request) {
				t.Error("a request is served")
				w.Send(http.StatusOK, nil)
			})
			if _, err := io.WriteString(client.NetConn(), says); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			<-ended
		})
	}
}
