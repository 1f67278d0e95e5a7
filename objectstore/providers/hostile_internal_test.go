package providers

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/objectstore"
)

// TestStoresThatStall checks that a call to a store that never replies is retried and fails, even
// without a deadline in its context.
func TestStoresThatStall(t *testing.T) {
	EachProtocol(t, func(t *testing.T, p Protocol) {
		done := make(chan struct{})
		var calls atomic.Int32
		l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			<-done
		})
		defer close(done)
		b, err := objectstore.NewOpener(os.Getenv, connector{20 * time.Millisecond, mostReply}.connect)(t.Context(), l)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, objectstore.ErrUnreachable) || calls.Load() != 3 {
			t.Errorf("got %v after %d calls, want 3 and that it cannot be reached", err, calls.Load())
		}
	})
}

// TestListingsAreBounded checks that a page longer than the limit is an error.
func TestListingsAreBounded(t *testing.T) {
	EachProtocol(t, func(t *testing.T, p Protocol) {
		l := Serve(t, p, func(w http.ResponseWriter, r *http.Request) {
			head, tail, _ := strings.Cut(p.Page("\x00"), "\x00")
			_, _ = io.WriteString(w, head)
			_, _ = io.WriteString(w, strings.Repeat("a", 2000)+tail)
		})
		b, err := objectstore.NewOpener(os.Getenv, connector{stallTime, 1000}.connect)(t.Context(), l)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "more than 1000 bytes") {
			t.Errorf("got %v, want that the reply is too long", err)
		}
	})
}
