package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/server"
	"github.com/nereid-serving/nereid/server/rest"
	"github.com/nereid-serving/nereid/server/servertest"
)

// fakeSocket is a client that has sent all its input and reads everything.
type fakeSocket struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *fakeSocket) Read(p []byte) (int, error) { return s.in.Read(p) }

func (s *fakeSocket) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *fakeSocket) Close() error { return nil }

func (s *fakeSocket) SetReadDeadline(time.Time) error { return nil }

func (s *fakeSocket) SetWriteDeadline(time.Time) error { return nil }

// errorLog fails a test when an error is logged.
type errorLog struct{ t testing.TB }

func (l errorLog) Write(p []byte) (int, error) {
	l.t.Errorf("logged: %s", p)
	return len(p), nil
}

// ServeBytes serves a client's input and returns the number of replies. No handler may panic, each
// reply must be valid, and all memory must be released.
func ServeBytes(t testing.TB, cfg rest.Config, input []byte) (replies int) {
	t.Helper()
	blocks := &fakeBlocks{Blocks: servertest.Blocks{Account: budget.New(budget.Config{Limit: 64 << 20})}}
	h, err := rest.New(cfg, server.Parts{Core: servertest.NewCore(), Allocate: blocks.Allocate, Open: blocks.open, Memory: blocks.Account, Logging: &fakeLog{}},
		zerolog.New(errorLog{t}).Level(zerolog.ErrorLevel))
	if err != nil {
		t.Fatal(err)
	}
	socket := &fakeSocket{in: bytes.NewReader(input)}
	h.ServeConn(context.Background(), socket)
	if n := blocks.Lent.Load(); n != 0 {
		t.Errorf("%d blocks have not been released", n)
	}
	if n := blocks.Account.Total(); n != 0 {
		t.Errorf("%d bytes are still charged to the account", n)
	}
	for r := bufio.NewReader(&socket.out); ; {
		if _, err := r.Peek(1); err != nil {
			return replies
		}
		reply, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("a reply is malformed: %v", err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil && !(errors.Is(err, io.ErrUnexpectedEOF) && bytes.Contains(input, []byte("HEAD "))) {
			t.Fatalf("the body of a reply is malformed: %v", err)
		}
		if reply.StatusCode >= 400 && !bytes.HasPrefix(body, []byte(`{"error":`)) && !bytes.Contains(input, []byte("HEAD ")) {
			t.Fatalf("reply %d has the body %q, want an error", reply.StatusCode, body)
		}
		replies++
	}
}
