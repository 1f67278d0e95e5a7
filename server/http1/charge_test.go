package http1_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/server/http1"
)

// TestPartialHeadsKeepNobodyOut checks that connections that have sent one byte each do not keep
// new connections out.
func TestPartialHeadsKeepNobodyOut(t *testing.T) {
	address, _ := http1.Running(t, http1.Config{MaxConnections: 4}, echo)
	for range 12 {
		if _, err := http1.Dial(t, address).Write([]byte("G")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		// A byte that the server has not read yet may be a whole request, so its connection is not
		// closed.
		testkit.Eventually(t, time.Minute, func() bool {
			c := http1.Dial(t, address)
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			reply, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = reply.Body.Close()
			return reply.StatusCode == http.StatusOK
		})
	}
}

// TestAHolderCanBeEnded checks that the account can end a connection that holds memory while it
// serves a request.
func TestAHolderCanBeEnded(t *testing.T) {
	serves := make(chan struct{})
	address, account := http1.Running(t, http1.Config{}, func(w *http1.Reply, r *http1.Request) {
		if w.Charge().Take(budget.Replies, 1<<20) != nil {
			t.Error("a mebibyte is refused")
		}
		close(serves)
		<-r.Context().Done()
		w.Send(http.StatusOK, nil)
	})
	c := http1.Dial(t, address)
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
