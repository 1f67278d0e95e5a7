package http1

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// Running runs a server with an account until the test ends, and returns its address. Nothing may
// be charged at the end.
func Running(t *testing.T, cfg Config, serve func(*Reply, *Request)) (address string, account *budget.Account) {
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

func Dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // for a test that hangs
	return c
}

// Served serves one connection with the handler. It returns the client's side and a channel that is
// closed when the connection has ended.
func Served(t *testing.T, cfg Config, serve func(*Reply, *Request)) (net.Conn, <-chan struct{}) {
	t.Helper()
	s := NewServer(cfg, nil, Handler{Serve: serve}, zerolog.Nop())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		s.ServeConn(ctx, raw)
	}()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = client.Close()
		_ = l.Close()
		<-ended
	})
	_ = client.SetDeadline(time.Now().Add(time.Minute)) // for a test that hangs
	return client, ended
}

// ServedSecurely is Served over TLS.
func ServedSecurely(t *testing.T, cfg Config, serve func(*Reply, *Request)) (*tls.Conn, <-chan struct{}) {
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
	raw, ended := Served(t, cfg, serve)
	return tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}), ended
}
