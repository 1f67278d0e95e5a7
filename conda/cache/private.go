package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// privatePattern is how temporary directories are named.
const privatePattern = "nereid-environments-*"

// makePrivate makes a temporary directory of this process alone, and removes those of processes
// that were killed.
func makePrivate() (*store, error) {
	sweepPrivate()
	for {
		root, err := os.MkdirTemp("", privatePattern)
		if err != nil {
			return nil, err
		}
		// Until the lock is held another process may take the directory for one left behind.
		l, err := tryLock(root+privateLock, exclusive, true)
		if errors.Is(err, errHeld) || isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, os.Remove(root))
		}
		s, err := makeStore(root)
		if err != nil {
			l.remove()
			return nil, errors.Join(err, os.RemoveAll(root))
		}
		s.private = l
		return s, nil
	}
}

// privateLock is the file below a temporary directory that its process has locked.
const privateLock = "/in-use"

func sweepPrivate() {
	roots, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePattern)) // of a correct pattern
	for _, root := range roots {
		if info, err := os.Lstat(root); err != nil || !info.IsDir() || trusted(root) != nil {
			continue
		}
		if l, err := tryLock(root+privateLock, exclusive, true); err == nil {
			_ = removeAll(root) // what cannot be removed now is tried again by the next process
			l.release()
		}
	}
}

// isClosed reports whether a directory is of no use to this user, so that a temporary one takes
// its place.
func isClosed(err error) bool {
	var noLocks *lockError
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, errNoFolder) || errors.As(err, &noLocks)
}
