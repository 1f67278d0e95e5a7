package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// servedSecurely is served through TLS.
func servedSecurely(t *testing.T, cfg Config, serve func(*Reply, *Request)) (*tls.Conn, <-chan struct{}) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "server")
	testkit.WriteCertificate(t, at+".crt", at+".key")
	pair, err := tls.LoadX509KeyPair(at+".crt", at+".key")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(at + ".crt")
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate", err)
	}
	cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	raw, ended := served(t, cfg, serve)
	return tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}), ended
}

// echo replies with the body, in parts of many sizes.
func echo(w *Reply, r *Request) {
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
	client, _ := servedSecurely(t, Config{}, echo)
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
		"\x80\x80\x80\x80\x80": "", // noise gets an alert of TLS or nothing, and no HTTP
	} {
		client, ended := servedSecurely(t, Config{}, echo)
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

// TestSecureClientThatLeavesIsSeen disconnects during a request: the end of TLS comes as bytes on
// the socket, which are not another request.
func TestSecureClientThatLeavesIsSeen(t *testing.T) {
	for name, leave := range map[string]func(*tls.Conn) error{
		"with a word": (*tls.Conn).Close,
		"without":     func(c *tls.Conn) error { return c.NetConn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			serving, gone := make(chan struct{}), make(chan error, 1)
			client, ended := servedSecurely(t, Config{}, func(w *Reply, r *Request) {
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

// TestSecureRequestThatComesEarlyIsWhole sends a request whose first byte the watch reads.
func TestSecureRequestThatComesEarlyIsWhole(t *testing.T) {
	var watch *disconnectWatcher
	paths := make(chan string, 2)
	client, _ := servedSecurely(t, Config{}, func(w *Reply, r *Request) {
		paths <- r.Path()
		if r.Path() == "/first" {
			watch = &w.c.watch
			r.Watch()
			<-watch.done // the look that has read the byte has ended
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

// TestSecureClientThatOnlyConnectsIsEnded connects and sends nothing, or no TLS.
func TestSecureClientThatOnlyConnectsIsEnded(t *testing.T) {
	for name, says := range map[string]string{"nothing": "", "plain HTTP": "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "noise": strings.Repeat("\x16", 600)} {
		t.Run(name, func(t *testing.T) {
			client, ended := servedSecurely(t, Config{HeaderTimeout: 50 * time.Millisecond}, func(w *Reply, _ *Request) {
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

// TestIdleSecureConnectionIsClosedWithoutWaiting evicts a connection, with the locks of all
// connections held.
func TestIdleSecureConnectionIsClosedWithoutWaiting(t *testing.T) {
	var c *conn
	client, ended := servedSecurely(t, Config{}, func(w *Reply, _ *Request) {
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
