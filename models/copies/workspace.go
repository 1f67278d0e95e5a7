package copies

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// namePrefix begins the names of workspaces, one for each server.
const namePrefix = "nereid-models-"

// ErrClosed reports that the workspace is closed: the server exits.
var ErrClosed = errors.New("the directory for copies is closed")

// Workspace is the private directory of one server inside a directory that others may write to.
type Workspace struct {
	base string
	log  zerolog.Logger

	mu     sync.Mutex
	parent *os.File // nil until there was a copy
	closed bool
}

// NewWorkspace makes no directory yet. base is its parent directory; "" is the temporary directory.
// Removal errors are logged.
func NewWorkspace(base string, log zerolog.Logger) *Workspace {
	return &Workspace{base: base, log: log}
}

// Base returns the parent directory of the workspace.
func (w *Workspace) Base() string {
	if w.base == "" {
		return os.TempDir()
	}
	return w.base
}

// Make makes an empty directory whose name begins with prefix. The caller is its user. The error is
// ErrClosed or the kernel's.
func (w *Workspace) Make(prefix string) (*Copy, error) {
	parent, err := w.directory()
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	return (&Copy{path: path, log: w.log}).Hold(), nil
}

// directory returns the path of the workspace, which it makes if necessary.
func (w *Workspace) directory() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return "", ErrClosed
	}
	if w.parent != nil {
		if _, err := os.Lstat(w.parent.Name()); errors.Is(err, fs.ErrNotExist) { // it was cleaned up
			_ = w.parent.Close()
			w.parent = nil
		}
	}
	if w.parent == nil {
		parent, err := makeLocked(w.Base())
		if err != nil {
			return "", err
		}
		w.parent = parent
	}
	return w.parent.Name(), nil
}

// Close removes all copies, used or not, and refuses new ones.
func (w *Workspace) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.parent == nil {
		return
	}
	if err := removeTree(w.parent.Name()); err != nil {
		w.log.Error().Msgf("remove the copied files of models: %v", err)
	}
	_ = w.parent.Close()
	w.parent = nil
}

// makeLocked makes a workspace's directory. The lock on it tells other servers, and cleaners of
// temporary files, that it is in use.
func makeLocked(base string) (*os.File, error) {
	for {
		path, err := os.MkdirTemp(base, namePrefix)
		if err != nil {
			return nil, err
		}
		directory, err := os.Open(path)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // another server has swept it away before it was locked
			}
			return nil, errors.Join(err, os.Remove(path))
		}
		if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), directory.Close(), os.Remove(path))
		}
		locked, err := directory.Stat()
		named, gone := os.Lstat(path)
		if err == nil && gone == nil && os.SameFile(locked, named) {
			return directory, nil
		}
		_ = directory.Close()
	}
}
