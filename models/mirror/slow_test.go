package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/objectstore"
)

// slow is a bucket that sends its objects, except quick, in pieces with a wait before each.
type slow struct {
	objectstore.Bucket
	quick string
	piece int
	wait  time.Duration
}

// Open implements objectstore.Bucket.
func (s slow) Open(ctx context.Context, o objectstore.Object) (io.ReadCloser, error) {
	body, err := s.Bucket.Open(ctx, o)
	if err != nil || o.Key == s.quick {
		return body, err
	}
	return slowBody{body, ctx, s}, nil
}

type slowBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // as that of an answer of net/http
	slow
}

// Read implements io.Reader.
func (b slowBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.wait):
		return b.ReadCloser.Read(p[:min(len(p), b.piece)])
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// slowly makes the store of a world slow.
func slowly(s slow) func(*Config) {
	return func(c *Config) {
		open := c.Open
		c.Open = func(ctx context.Context, at objectstore.Location) (_ objectstore.Bucket, err error) {
			s.Bucket, err = open(ctx, at)
			return s, err
		}
	}
}

// TestSlowDownloadsGiveUpTheirTurn checks that downloads which are too slow fail, so that other
// copies get their turn.
func TestSlowDownloadsGiveUpTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowly(slow{quick: "quick/1/x", piece: 1, wait: 7 * time.Second}), "a/1/x", "b/1/x", "c/1/x", "d/1/x", "quick/1/x")
		for _, name := range []string{"a", "b", "c", "d"} {
			w.store.Put(name+"/1/x", strings.Repeat("x", 100))
		}
		w.renew()
		began := time.Now()
		failed := make(chan error)
		for _, name := range []string{"a", "b", "c", "d"} {
			go func() {
				_, err := w.copyOf(name)
				failed <- err
			}()
		}
		synctest.Wait() // all turns are taken
		go func() {
			for range mostCopies {
				if err := <-failed; !errors.Is(err, objectstore.ErrUnreachable) || !strings.Contains(err.Error(), "has sent 4 bytes of an object in 30s, at least 65536 are required") {
					t.Errorf("got error %v", err)
				}
			}
		}()
		w.mustCopy("quick").Drop()
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("another copy took %s, want 30s", took)
		}
		synctest.Wait()
	})
}

// TestSlowStoresAreWaitedFor checks that a slow store that sends enough bytes is not a stall.
func TestSlowStoresAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slowly(slow{piece: leastBytes, wait: 29 * time.Second}), "a/1/x")
		w.store.Put("a/1/x", strings.Repeat("x", 10*leastBytes))
		w.renew()
		w.mustCopy("a").Drop()
	})
}

// slowDisk takes a minute to write each piece.
type slowDisk struct{ bytes.Buffer }

func (*slowDisk) Name() string { return "slow" }

// Write implements io.Writer.
func (d *slowDisk) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	return d.Buffer.Write(p)
}

// TestSlowDiskIsNotAStall checks that time spent writing to a slow disk does not count as a stall
// of the store, and does not give a slow store more time.
func TestSlowDiskIsNotAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, "a/1/x")
		for wait, want := range map[time.Duration]string{time.Second: "", 11 * time.Second: "the store of s3://bucket/models has sent 2 bytes of an object in 30s, at least 65536 are required"} {
			var disk slowDisk
			watch := w.mirror.watch(t.Context())
			body := slowBody{io.NopCloser(strings.NewReader("text")), watch.ctx, slow{piece: 1, wait: wait}}
			size, err := w.mirror.pour(&disk, watchedReader{body, watch}, &diskSpace{fetcher: &w.mirror.fetcher})
			watch.stop()
			if got := errorText(err); got != want || want == "" && (size != 4 || disk.String() != "text") {
				t.Errorf("a byte each %s: got %d bytes, error %q, want %q", wait, size, got, want)
			}
		}
	})
}

// slowList is a bucket that lists many objects, with a wait before each.
type slowList struct {
	objectstore.Bucket
	wait  *time.Duration
	count *int
}

// List implements objectstore.Bucket.
func (s slowList) List(ctx context.Context, prefix string, each func(objectstore.Object) error) error {
	if *s.wait == 0 {
		return s.Bucket.List(ctx, prefix, each)
	}
	for i := range *s.count {
		select {
		case <-time.After(*s.wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := each(objectstore.Object{Key: fmt.Sprintf("a/1/%d", i), Version: "1"}); err != nil {
			return err
		}
	}
	return nil
}

// TestListingsThatTrickleAreGivenUp checks that a listing that is too slow fails, and that a
// listing that is fast enough may take an hour at most.
func TestListingsThatTrickleAreGivenUp(t *testing.T) {
	for _, test := range []struct {
		name  string
		wait  time.Duration
		count int
		took  time.Duration
		want  string
	}{
		{"one each 29 s", 29 * time.Second, 1 << 20, 30 * time.Second, "has listed 1 objects in 30s, at least 100 are required"},
		{"one a second", 1100 * time.Millisecond, 1 << 20, 30 * time.Second, "has listed 27 objects in 30s, at least 100 are required"},
		{"without end", 290 * time.Millisecond, 1 << 20, time.Hour, "has not ended its listing in 1h0m0s"},
		{"enough", 290 * time.Millisecond, 1000, 290 * time.Second, ""},
		{"few and late", 7 * time.Second, 4, 28 * time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slowList{wait: new(time.Duration), count: &test.count}
				w := newWorld(t, func(c *Config) {
					open := c.Open
					c.Open = func(ctx context.Context, at objectstore.Location) (_ objectstore.Bucket, err error) {
						s.Bucket, err = open(ctx, at)
						return s, err
					}
				}, "b/1/x")
				*s.wait = test.wait
				began := time.Now()
				_, err := w.mirror.list(t.Context(), nil)
				if took := time.Since(began).Round(time.Second); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if got := errorText(err); (test.want == "") != (got == "") || !strings.HasSuffix(got, test.want) {
					t.Errorf("got error %q, want %q", got, test.want)
				}
			})
		})
	}
}

// TestArchivesThatAreFetchedStay checks that an archive is not forgotten while its store is slow to
// answer a load.
func TestArchivesThatAreFetchedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, nil)
		s.one.Put("env.tar.gz", "one")
		s.one.Hang(mirrortest.List)
		fetched := make(chan error)
		go func() {
			a, err := s.fetch("s3://one/env.tar.gz")
			if err == nil {
				a.Drop()
			}
			fetched <- err
		}()
		synctest.Wait()
		slow := nameOf(s.at("s3://one/env.tar.gz"))
		for i := range mostUnused + 1 {
			if _, err := s.Watch(s.at(fmt.Sprintf("s3://two/%d/env.tar.gz", i))); err != nil {
				t.Fatal(err)
			}
		}
		if s.known[slow] == nil {
			t.Error("the archive was forgotten")
		}
		s.one.Resume(mirrortest.List)
		if err := <-fetched; err != nil {
			t.Fatal(err)
		}
		if n := s.known[slow].callers; n != 0 {
			t.Errorf("got %d callers after the fetch, want none", n)
		}
	})
}
