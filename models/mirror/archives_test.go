package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/mirror/mirrortest"
	"github.com/nereid-serving/nereid/objectstore"
)

// shelf is a set of archives in two stores. Each store serves a bucket, whatever directory the URL
// names, because a mirrortest.Store has only one.
type shelf struct {
	*testing.T
	*Archives
	one, two *mirrortest.Store
	place    string
	log      testkit.Buffer
	changed  chan struct{}
}

func newShelf(t *testing.T, change func(*ArchivesConfig)) *shelf {
	t.Helper()
	s := &shelf{T: t, one: mirrortest.New(), two: mirrortest.New(), place: t.TempDir(), changed: make(chan struct{}, 10)}
	config := ArchivesConfig{
		Open: func(ctx context.Context, l objectstore.Location) (objectstore.Bucket, error) {
			return map[string]*mirrortest.Store{"one": s.one, "two": s.two}[l.Bucket].Opener(ctx, l)
		},
		Base: func(string) string { return s.place }, Variable: func(string) string { return "MOUNT" },
		Changed: func() { s.changed <- struct{}{} }, Log: zerolog.New(&s.log),
	}
	if change != nil {
		change(&config)
	}
	s.Archives = NewArchives(config)
	t.Cleanup(func() {
		s.Close()
		if left := testkit.Tree(t, s.place); left != "" {
			t.Errorf("%s is left", left)
		}
	})
	return s
}

func (s *shelf) at(url string) objectstore.Location {
	s.Helper()
	l, _, err := objectstore.Parse(url)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *shelf) fetch(url string) (*Archive, error) {
	s.Helper()
	return s.Fetch(s.Context(), s.at(url))
}

func (s *shelf) mustFetch(url, want string) *Archive {
	s.Helper()
	a, err := s.fetch(url)
	if err != nil {
		s.Fatal(err)
	}
	if text, err := os.ReadFile(a.Path); err != nil || string(text) != want {
		s.Errorf("%s: got %q, %v; want %q", url, text, err, want)
	}
	return a
}

// renew checks all archives for changes and waits for the result.
func (s *shelf) renew() {
	s.Helper()
	s.Renew()
	s.work.Wait()
}

func (s *shelf) folders() int {
	s.Helper()
	found, err := filepath.Glob(filepath.Join(s.place, "*/*"))
	if err != nil {
		s.Fatal(err)
	}
	return len(found)
}

// TestArchivesAreShared checks that fetches of the same object share one file, however its URL is
// written, and that the last user removes the file.
func TestArchivesAreShared(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "packed")
	s.one.Hang(mirrortest.Read)
	got := make([]*Archive, 6)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			got[i], _ = s.fetch([]string{"s3://one/envs/env.tar.gz", "s3:///one//envs/models/../env.tar.gz"}[i%2])
		})
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return s.one.Waiting(mirrortest.Read) == 1 && s.one.Lists() == len(got) })
	s.one.Resume(mirrortest.Read)
	all.Wait()
	for _, a := range got {
		if a == nil || a.Path != got[0].Path {
			t.Fatalf("got %v, want the same file for all", got)
		}
	}
	if n := s.one.Opened("env.tar.gz"); n != 1 || len(s.known) != 1 {
		t.Errorf("it was read %d times as %d archives, want once as one", n, len(s.known))
	}
	if got := testkit.Tree(t, filepath.Dir(got[0].Path)); got != `env.tar.gz 600 "packed"` {
		t.Errorf("got %s", got)
	}
	later := s.mustFetch("s3://one/envs/env.tar.gz", "packed")
	for _, a := range got {
		a.Drop()
	}
	if s.folders() != 1 {
		t.Error("the file has gone before its last user")
	}
	later.Drop()
	if s.folders() != 0 {
		t.Error("the file stays after its last user")
	}
	s.mustFetch("s3://one/envs/env.tar.gz", "packed").Drop()
	if n := s.one.Opened("env.tar.gz"); n != 2 {
		t.Errorf("it was read %d times, want twice", n)
	}
}

// TestArchivesThatChange checks that Renew reports a changed archive, and that the new version is
// fetched beside the one in use.
func TestArchivesThatChange(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "first")
	first := s.mustFetch("s3://one/env.tar.gz", "first")
	defer first.Drop()
	name, err := s.Watch(s.at("s3://one/env.tar.gz"))
	if err != nil || s.Seen(name) != first.Sum || first.Sum == 0 || !IsArchive(name) {
		t.Fatalf("got %q, %v and the sum %d, want %d", name, err, s.Seen(name), first.Sum)
	}
	s.renew()
	if len(s.changed) != 0 {
		t.Error("what has not changed is told as a change")
	}
	s.one.Put("env.tar.gz", "second")
	s.renew()
	if len(s.changed) != 1 || s.Seen(name) == first.Sum {
		t.Errorf("got %d changes and the sum %d, want one and another sum", len(s.changed), s.Seen(name))
	}
	second := s.mustFetch("s3://one/env.tar.gz", "second")
	defer second.Drop()
	if s.folders() != 2 || second.Sum != s.Seen(name) {
		t.Errorf("got %d files, want both", s.folders())
	}
	s.one.Put("env.tar.gz", "third")
	if err := s.Look(t.Context(), name); err != nil || s.Seen(name) == second.Sum {
		t.Errorf("after a look: got %v and the sum that was", err)
	}
}

// TestArchivesThatChangeWhileTheyAreFetched checks that an archive that changes during its fetch is
// fetched again, but not forever.
func TestArchivesThatChangeWhileTheyAreFetched(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "0")
	changes := 2
	s.one.Before(func(call mirrortest.Call, key string) {
		if call == mirrortest.Open && key != "" && changes > 0 {
			changes--
			s.one.Put("env.tar.gz", "new")
		}
	})
	s.mustFetch("s3://one/env.tar.gz", "new").Drop()
	changes = 100
	_, err := s.fetch("s3://one/env.tar.gz")
	if err == nil || !strings.Contains(err.Error(), "s3://one/env.tar.gz changes while it is fetched: 5 fetches were started") {
		t.Errorf("got error %v", err)
	}
	if s.folders() != 0 {
		t.Errorf("%d directories are left", s.folders())
	}
}

// TestArchivesThatHangHoldUpTheirOwnModels checks that a hanging store delays only fetches from it,
// and that they end with their context.
func TestArchivesThatHangHoldUpTheirOwnModels(t *testing.T) {
	for _, call := range []mirrortest.Call{mirrortest.Open, mirrortest.List, mirrortest.Read} {
		t.Run(string(call), func(t *testing.T) {
			s := newShelf(t, nil)
			s.one.Put("env.tar.gz", "one")
			s.two.Put("env.tar.gz", "two")
			s.one.Hang(call)
			ctx, end := context.WithCancelCause(t.Context())
			over := errors.New("over")
			failed := make(chan error)
			for range 3 {
				go func() {
					_, err := s.Fetch(ctx, s.at("s3://one/env.tar.gz"))
					failed <- err
				}()
			}
			testkit.Eventually(t, 10*time.Second, func() bool { return s.one.Waiting(call) > 0 })
			name, err := s.Watch(s.at("s3://one/env.tar.gz"))
			if err != nil {
				t.Fatal(err)
			}
			s.Renew()
			s.Seen(name)
			s.mustFetch("s3://two/env.tar.gz", "two").Drop()
			end(over)
			for range 3 {
				if err := <-failed; !errors.Is(err, over) {
					t.Errorf("got error %v, want %v", err, over)
				}
			}
			testkit.Eventually(t, 10*time.Second, func() bool { return s.folders() == 0 })
			s.one.Resume(call)
			s.mustFetch("s3://one/env.tar.gz", "one").Drop() // works as before
			s.one.Hang(call)
			s.Renew() // closing the shelf must not wait for this
		})
	}
}

// TestOneOfSeveralGivesUp checks that a shared fetch continues when one of its waiters gives up.
func TestOneOfSeveralGivesUp(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "one")
	s.one.Hang(mirrortest.Read)
	ctx, end := context.WithCancel(t.Context())
	failed, got := make(chan error), make(chan *Archive)
	go func() {
		_, err := s.Fetch(ctx, s.at("s3://one/env.tar.gz"))
		failed <- err
	}()
	testkit.Eventually(t, 10*time.Second, func() bool { return s.one.Waiting(mirrortest.Read) == 1 })
	go func() {
		a, err := s.fetch("s3://one/env.tar.gz")
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	testkit.Eventually(t, 10*time.Second, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, known := range s.known {
			return known.newest.waiters == 2
		}
		return false
	})
	end()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	s.one.Resume(mirrortest.Read)
	(<-got).Drop()
	if n := s.one.Opened("env.tar.gz"); n != 1 || s.folders() != 0 {
		t.Errorf("it was read %d times and %d files are left, want once and none", n, s.folders())
	}
}

func TestArchivesThatFailLeaveNothing(t *testing.T) {
	denied := infer.Errorf(infer.Internal, "Unable to create S3 filesystem client. Check account credentials.")
	for name, test := range map[string]struct {
		url    string
		change func(*shelf)
		want   string
		is     error
	}{
		"absent":     {"s3://one/envs/other", func(*shelf) {}, "directory or file does not exist at s3://one/envs/other", objectstore.ErrAbsent},
		"longer":     {"s3://one/envs/env.tar", func(*shelf) {}, "directory or file does not exist at s3://one/envs/env.tar", objectstore.ErrAbsent},
		"directory":  {"s3://one/envs/full", func(*shelf) {}, "directory or file does not exist at s3://one/envs/full (it is a directory: ", nil},
		"marker":     {"s3://one/envs/made", func(*shelf) {}, "directory or file does not exist at s3://one/envs/made (it is a directory: ", nil},
		"bucket":     {"s3://one", func(*shelf) {}, "directory or file does not exist at s3://one (it names no object of the bucket)", nil},
		"way out":    {"s3://one/../two/env.tar.gz", func(*shelf) {}, "directory or file does not exist at s3://one/../two/env.tar.gz (it names no object", nil},
		"denied":     {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Fail(mirrortest.Open, denied) }, denied.Message, denied},
		"list fails": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Fail(mirrortest.List, denied) }, denied.Message, denied},
		"read fails": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Fail(mirrortest.Read, denied) }, denied.Message, denied},
		"open hangs": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Hang(mirrortest.Open) }, "the store of s3://one/envs has sent nothing for 50ms", nil},
		"list hangs": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Hang(mirrortest.List) }, "the store of s3://one/envs has sent nothing for 50ms", objectstore.ErrUnreachable},
		"read hangs": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.one.Hang(mirrortest.Read) }, "the store of s3://one/envs has sent nothing for 50ms", objectstore.ErrUnreachable},
		"no place":   {"s3://one/envs/env.tar.gz", func(s *shelf) { s.config.Base = func(string) string { return "/nowhere" } }, "Failed to create local temp folder: /nowhere/folderXXXXXX, errno:No such file or directory (MOUNT names the directory)", nil},
		"exit":       {"s3://one/envs/env.tar.gz", func(s *shelf) { s.Close() }, "Server exiting", nil},
		"no clients": {"s3://one/envs/env.tar.gz", func(s *shelf) { s.config.Open = nil }, "s3:// file-system not supported. To enable, build with -DTRITON_ENABLE_S3=ON.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, func(c *ArchivesConfig) { c.Stall = 50 * time.Millisecond })
			for _, key := range []string{"env.tar.gz", "full/bin/python", "made/"} {
				s.one.Put(key, "packed")
			}
			test.change(s)
			a, err := s.fetch(test.url)
			if err == nil {
				a.Drop()
				t.Fatal("it was fetched")
			}
			if !strings.HasPrefix(infer.AsError(err).Detailed().Message, test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got error %v, want %s (%v)", err, test.want, test.is)
			}
			if s.folders() > 0 {
				t.Errorf("%d directories are left", s.folders())
			}
		})
	}
}

// TestArchivesThatAreGoneStaySeen checks that Seen still returns the last sum of a deleted archive,
// and that the log names it once.
func TestArchivesThatAreGoneStaySeen(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "packed")
	a := s.mustFetch("s3://one/env.tar.gz", "packed")
	defer a.Drop()
	s.one.Delete("env.tar.gz")
	for range 3 {
		s.renew()
	}
	if n := strings.Count(s.log.String(), "check the execution environment s3://one/env.tar.gz for changes: directory or file does not exist at s3://one/env.tar.gz; loaded models stay"); n != 1 {
		t.Errorf("the log says it %d times, want once: %s", n, s.log.String())
	}
	if name, err := s.Watch(s.at("s3://one/env.tar.gz")); err != nil || s.Seen(name) != a.Sum || len(s.changed) != 0 {
		t.Errorf("got %v and the sum %d, want %d", err, s.Seen(name), a.Sum)
	}
	s.one.Put("env.tar.gz", "new")
	s.renew()
	if len(s.changed) != 1 || !strings.Contains(s.log.String(), "the execution environment s3://one/env.tar.gz is available again") {
		t.Errorf("got %d changes, want one: %s", len(s.changed), s.log.String())
	}
}

// TestArchivesAreForgotten checks that Renew forgets archives that no model has named for a while,
// and closes the connections to their stores.
func TestArchivesAreForgotten(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "one")
	s.two.Put("env.tar.gz", "two")
	s.mustFetch("s3://one/env.tar.gz", "one").Drop()
	used := s.mustFetch("s3://two/env.tar.gz", "two")
	defer used.Drop()
	s.mu.Lock()
	for _, known := range s.known {
		known.asked = time.Now().Add(-2 * idleArchive)
	}
	s.mu.Unlock()
	s.renew()
	if len(s.known) != 1 || !s.one.Closed() || s.two.Closed() {
		t.Errorf("got %d archives, closed %v and %v; want that in use", len(s.known), s.one.Closed(), s.two.Closed())
	}
}

// TestUnusedArchivesAreFew checks that archives which no model uses are forgotten when there are
// many, the oldest first, while those in use stay.
func TestUnusedArchivesAreFew(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "one")
	s.two.Put("env.tar.gz", "two")
	used := s.mustFetch("s3://two/env.tar.gz", "two")
	defer used.Drop()
	s.mustFetch("s3://one/env.tar.gz", "one").Drop()
	watch := func(i int) string {
		name, err := s.Watch(s.at(fmt.Sprintf("s3://one/%d/env.tar.gz", i)))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := watch(0)
	for i := range mostUnused {
		watch(i)
	}
	if len(s.known) != mostUnused+1 || len(s.doors) != mostUnused+1 || !s.one.Closed() || s.two.Closed() {
		t.Errorf("got %d archives in %d directories, closed %v and %v; want %d, and that in use open", len(s.known), len(s.doors), s.one.Closed(), s.two.Closed(), mostUnused+1)
	}
	last := watch(mostUnused)
	if s.known[first] != nil || s.known[last] == nil {
		t.Error("got the first archive kept, or the last forgotten; want the reverse")
	}
	s.mustFetch("s3://one/env.tar.gz", "one").Drop() // known again
}

// TestFewLooksAtATime checks that Renew looks at a bounded number of directories at a time, and at
// all of them in the end.
func TestFewLooksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, func(c *ArchivesConfig) { c.Changed = nil })
		s.one.Put("env.tar.gz", "one")
		var names []string
		for i := range mostLooks + 5 {
			name, err := s.Watch(s.at(fmt.Sprintf("s3://one/%d/env.tar.gz", i)))
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		s.one.Hang(mirrortest.List)
		s.Renew()
		synctest.Wait()
		if n := s.one.Waiting(mirrortest.List); n != mostLooks {
			t.Errorf("got %d looks at a time, want %d", n, mostLooks)
		}
		s.one.Resume(mirrortest.List)
		s.work.Wait()
		for _, name := range names {
			if s.Seen(name) == 0 {
				t.Errorf("%q was not looked at", name)
			}
		}
	})
}

// TestArchivesThatACleanerHasRemoved checks that a file that was removed is fetched again, once for
// all callers, even while models still use it.
func TestArchivesThatACleanerHasRemoved(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "packed")
	first := s.mustFetch("s3://one/env.tar.gz", "packed")
	defer first.Drop()
	if err := os.Remove(first.Path); err != nil {
		t.Fatal(err)
	}
	got := make([]*Archive, 8)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i], _ = s.fetch("s3://one/env.tar.gz") })
	}
	all.Wait()
	for _, a := range got {
		if a == nil || a.Path != got[0].Path || a.Path == first.Path || a.Sum != first.Sum {
			t.Fatalf("got %v, want one other file than %s, of the same version, for all", got, first.Path)
		}
		defer a.Drop()
	}
	if text, err := os.ReadFile(got[0].Path); err != nil || string(text) != "packed" {
		t.Errorf("got %q, %v", text, err)
	}
	if n := s.one.Opened("env.tar.gz"); n != 2 {
		t.Errorf("it was read %d times, want twice", n)
	}
}

// TestArchivesAreFetchedAgainAfterPauses checks that pauses between repeated fetches give uploads
// time, and that a pause ends with the context or the server.
func TestArchivesAreFetchedAgainAfterPauses(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // the time at which end is called
		end   func(s *shelf, cancel func())
		want  string
		took  time.Duration
	}{
		"to the last":  {time.Hour, func(*shelf, func()) {}, "s3://one/env.tar.gz changes while it is fetched: 5 fetches", time.Second},
		"with context": {250 * time.Millisecond, func(_ *shelf, cancel func()) { cancel() }, "context canceled", 250 * time.Millisecond},
		"with server":  {250 * time.Millisecond, func(s *shelf, _ func()) { s.Close() }, "Server exiting", 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(t, nil)
				s.one.Put("env.tar.gz", "0")
				s.one.Before(func(call mirrortest.Call, key string) {
					if call == mirrortest.Open && key != "" {
						s.one.Put("env.tar.gz", "new")
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				timer := time.AfterFunc(test.after, func() { test.end(s, cancel) })
				defer timer.Stop()
				began := time.Now()
				_, err := s.Fetch(ctx, s.at("s3://one/env.tar.gz"))
				if took := time.Since(began); err == nil || !strings.HasPrefix(err.Error(), test.want) || took != test.took {
					t.Errorf("got error %v after %s, want %s after %s", err, took, test.want, test.took)
				}
			})
		})
	}
}

// overtaken is a bucket whose first listing shows the state when it began, but returns only when
// goOn is closed.
type overtaken struct {
	objectstore.Bucket
	first *atomic.Bool  // set when the first listing has begun
	taken chan struct{} // closed when the first listing has been read
	goOn  chan struct{}
}

// List implements objectstore.Bucket.
func (b overtaken) List(ctx context.Context, prefix string, each func(objectstore.Object) error) error {
	if !b.first.CompareAndSwap(false, true) {
		return b.Bucket.List(ctx, prefix, each)
	}
	var list []objectstore.Object
	err := b.Bucket.List(ctx, prefix, func(o objectstore.Object) error {
		list = append(list, o)
		return nil
	})
	close(b.taken)
	<-b.goOn
	for _, o := range list {
		if err := each(o); err != nil {
			return err
		}
	}
	return err
}

// TestLooksThatAreOvertaken checks that a slow look does not undo the result of a later one.
func TestLooksThatAreOvertaken(t *testing.T) {
	taken, goOn := make(chan struct{}), make(chan struct{})
	s := newShelf(t, func(c *ArchivesConfig) {
		open, first := c.Open, new(atomic.Bool)
		c.Open = func(ctx context.Context, l objectstore.Location) (objectstore.Bucket, error) {
			b, err := open(ctx, l)
			return overtaken{b, first, taken, goOn}, err
		}
	})
	s.one.Put("env.tar.gz", "old")
	name, err := s.Watch(s.at("s3://one/env.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	early := make(chan error)
	go func() { early <- s.Look(s.Context(), name) }()
	<-taken
	s.one.Put("env.tar.gz", "new")
	if err := s.Look(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	seen := s.Seen(name)
	close(goOn)
	if err := <-early; err != nil || s.Seen(name) != seen {
		t.Errorf("got %v and the sum %d, want that of the later look, %d", err, s.Seen(name), seen)
	}
	s.one.Put("env.tar.gz", "newer")
	if err := s.Look(t.Context(), name); err != nil || s.Seen(name) == seen {
		t.Errorf("got %v and the sum that was, want that of the newer version", err)
	}
}

// TestArchivesRemoveDirectoriesOfDeadServers checks that directories of dead servers are removed
// when a store is opened, but not by Watch, which must not block.
func TestArchivesRemoveDirectoriesOfDeadServers(t *testing.T) {
	s := newShelf(t, nil)
	s.one.Put("env.tar.gz", "packed")
	left := filepath.Join(s.place, "nereid-models-1")
	if err := os.MkdirAll(filepath.Join(left, "folder1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Watch(s.at("s3://one/env.tar.gz")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); err != nil {
		t.Errorf("got %v, want that a name alone removes nothing", err)
	}
	s.mustFetch("s3://one/env.tar.gz", "packed").Drop()
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want what was left to be gone", err)
	}
}
