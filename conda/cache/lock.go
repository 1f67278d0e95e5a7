package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mode is the way a lock is held.
type mode int

const (
	shared    mode = unix.LOCK_SH
	exclusive mode = unix.LOCK_EX
)

// errHeld reports that others hold a lock that excludes the wanted one.
var errHeld = errors.New("the lock is held")

// lock is a flock on a file of its own. The kernel frees it when this process ends, however
// it ends. Two locks on one path exclude each other within a process, too.
type lock struct {
	file *os.File
	path string
}

// tryLock takes the lock at path at once, or returns errHeld. If make is false and the file is
// missing, the error is fs.ErrNotExist.
func tryLock(path string, how mode, make bool) (*lock, error) {
	flags := unix.O_RDWR | unix.O_CREAT // network file systems want the right to write for an exclusive lock
	if !make && how == shared {
		flags = unix.O_RDONLY // a cache on a read-only file system is locked, too
	} else if !make {
		flags = unix.O_RDWR
	}
	for {
		file, err := os.OpenFile(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		l := &lock{file, path}
		if err := l.become(how); err != nil {
			file.Close()
			return nil, err
		}
		// The previous holder may have removed the file between this open and this flock. Then this lock
		// excludes no other process, as others open a new file of that name.
		if l.named() {
			return l, nil
		}
		file.Close()
	}
}

// become takes the lock, or changes its mode. The kernel releases a held lock before it takes the
// other mode, so that others may come between: then it is lost, and the error is errHeld.
func (l *lock) become(how mode) error {
	for {
		err := unix.Flock(int(l.file.Fd()), int(how)|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errHeld
		default:
			return &lockError{l.path, err}
		}
	}
}

// named reports whether the path still leads to this lock's file.
func (l *lock) named() bool {
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(l.path)
	return err == nil && os.SameFile(ours, there)
}

// release releases the lock and leaves its file. A nil lock is already released.
func (l *lock) release() {
	if l != nil {
		l.file.Close()
	}
}

// remove releases an exclusive lock and removes its file. The file is removed while the lock is
// held, so that named tells the next holder that the path leads elsewhere.
func (l *lock) remove() {
	_ = os.Remove(l.path)
	l.file.Close()
}

// lockError reports that a file system has no locks.
type lockError struct {
	path string
	err  error
}

func (e *lockError) Error() string {
	return fmt.Sprintf("flock %s: %v: the file system of a cache needs locks, which network file systems may lack; "+
		"name a directory on a local one with env-cache-directory", e.path, e.err)
}

func (e *lockError) Unwrap() error { return e.err }

// Pauses between tries for a lock that another process holds, at first and later.
const (
	firstPause = 2 * time.Millisecond
	mostPause  = 100 * time.Millisecond
)

// waitLock takes the exclusive lock at path as soon as others have released it. flock itself could
// not be interrupted when ctx ends, so it is retried.
func waitLock(ctx context.Context, path string) (*lock, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		l, err := tryLock(path, exclusive, true)
		if !errors.Is(err, errHeld) {
			return l, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// isAbsent reports whether an error says that there is no such file.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
