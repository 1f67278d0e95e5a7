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

// TestSmallTagsAreBounded checks that a page of S3 with more tags than objects can have is an error
// before it takes many times its length, and that a page of a thousand objects with the longest
// names is not.
func TestSmallTagsAreBounded(t *testing.T) {
	page := func(contents string) error {
		l := Serve(t, Protocols[0], func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `<ListBucketResult><EncodingType>url</EncodingType>`+contents+`</ListBucketResult>`)
		})
		b, err := Open(t.Context(), l)
		if err != nil {
			return err
		}
		defer b.Close()
		return b.List(t.Context(), "", func(objectstore.Object) error { return nil })
	}
	for what, small := range map[string]string{"tags": "<Contents/>", "attributes": `<a b=""/>`} {
		if err := page(strings.Repeat(small, mostS3Marks)); !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "more than 100000 tags and attributes") {
			t.Errorf("%s: got %v, want that there are too many", what, err)
		}
	}
	longest := "<Contents><Key>a" + strings.Repeat("/"+strings.Repeat("%C3%A9", 127), 4) + "</Key>" + strings.Repeat("<Detail>text of one more detail</Detail>", 10) +
		"<Size>1</Size><ETag>&quot;0123456789abcdef0123456789abcdef-10000&quot;</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>"
	if err := page(strings.Repeat(longest, 1000)); err != nil {
		t.Errorf("a thousand objects: got %v, want none", err)
	}
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
