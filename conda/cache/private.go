package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// privatePattern is the name of temporary directories.
const privatePattern = "nereid-environments-*"

// makePrivate makes a temporary directory of this process, and removes those of killed processes.
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
			_ = removeAll(root) // the next process retries the remains
			l.release()
		}
	}
}

// isClosed reports whether a directory is unusable for this user, so that a temporary one replaces
// it.
func isClosed(err error) bool {
	var noLocks *lockError
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, errNoFolder) || errors.As(err, &noLocks)
}
