package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The tests of this file are internal because other packages cannot take locks.

// TestARemovedLockExcludesNobody checks that a lock has one holder at a time, although each holder
// removes its file while others have it open.
func TestARemovedLockExcludesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			for range 100 {
				l, err := waitLock(context.Background(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("got %d holders at once, want one", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				l.remove()
			}
		})
	}
	wg.Wait()
}

// TestALockKnowsThatItsFileWasRemoved checks that a lock detects that its file was removed, or
// replaced by the next holder's, after it was opened.
func TestALockKnowsThatItsFileWasRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder, err := tryLock(path, exclusive, true)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	late := &lock{file, path}
	defer late.release()
	if !late.named() {
		t.Error("the lock's file is there: got that it is not")
	}
	holder.remove()
	if err := late.become(exclusive); err != nil || late.named() {
		t.Errorf("a lock on a removed file: got %v and named = %v, want none and false", err, late.named())
	}
	next, err := tryLock(path, exclusive, true)
	if err != nil || late.named() || !next.named() {
		t.Fatalf("beside the next holder's: got %v, named = %v and %v, want false and true", err, late.named(), next.named())
	}
	next.remove()
}

func TestSharedAndExclusiveLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := tryLock(path, shared, false); !isAbsent(err) {
		t.Errorf("a lock without a file: got %v, want that there is none", err)
	}
	first, err := tryLock(path, exclusive, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path, shared, false); !errors.Is(err, errHeld) {
		t.Errorf("shared beside exclusive: got %v, want that it is held", err)
	}
	if err := first.become(shared); err != nil {
		t.Error(err)
	}
	second, err := tryLock(path, shared, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.become(exclusive); !errors.Is(err, errHeld) {
		t.Errorf("exclusive beside shared: got %v, want that it is held", err)
	}
	first.release()
	second.release()
	ctx, cancel := context.WithCancel(t.Context())
	third, err := waitLock(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer third.release()
	cancel()
	if _, err := waitLock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait without an end: got %v, want that of its ctx", err)
	}
}

// TestAFileSystemWithoutLocks checks that the error of a failed lock has the file and a remedy. The
// default directory is then replaced by a temporary one.
func TestAFileSystemWithoutLocks(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	file.Close() // flock fails, but not because of another holder
	err = (&lock{file, file.Name()}).become(shared)
	var none *lockError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), file.Name()) || !strings.Contains(err.Error(), "env-cache-directory") || !isClosed(err) {
		t.Errorf("got %v, want a lockError with the file and the remedy", err)
	}
}
