package http1

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestContinueFailsWithoutAWaitOnceTheClientHasGone checks that Continue fails at once after the
// write timeout has passed, instead of waiting for each piece.
func TestContinueFailsWithoutAWaitOnceTheClientHasGone(t *testing.T) {
	failures := make(chan error, 3)
	client, ended := Served(t, Config{WriteTimeout: 50 * time.Millisecond}, func(w *Reply, _ *Request) {
		w.Begin(http.StatusOK)
		piece := make([]byte, 1<<20)
		err := w.Continue(piece)
		for err == nil { // until the socket's buffers are full
			err = w.Continue(piece)
		}
		failures <- err
		deadline := w.c.writeDeadline
		failures <- w.Continue(piece)
		if !w.c.writeDeadline.Equal(deadline) {
			failures <- errors.New("the next piece has been given time")
			return
		}
		failures <- ErrClientGone
		w.End()
	})
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-failures; !errors.Is(err, ErrClientGone) {
			t.Errorf("Continue: %v", err)
		}
	}
	<-ended
}
