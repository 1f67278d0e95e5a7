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

// placePrefix begins the names of places, one for each server.
const placePrefix = "nereid-models-"

// ErrClosed says that the place is closed: the server exits.
var ErrClosed = errors.New("the directory for copies is closed")

// Place is the private directory of one server in a directory that others may write to.
type Place struct {
	base string
	log  zerolog.Logger

	mu     sync.Mutex
	parent *os.File // nil until there was a copy
	closed bool
}

// NewPlace makes no directory yet. Base is where it will lie; "" is the directory for temporary files. What cannot be
// removed is logged.
func NewPlace(base string, log zerolog.Logger) *Place {
	return &Place{base: base, log: log}
}

// Base is the directory in which the place lies.
func (p *Place) Base() string {
	if p.base == "" {
		return os.TempDir()
	}
	return p.base
}

// Make makes an empty directory, whose name begins with prefix. The caller is its user. The error is ErrClosed or the
// kernel's.
func (p *Place) Make(prefix string) (*Copy, error) {
	parent, err := p.directory()
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	return (&Copy{path: path, log: p.log}).Hold(), nil
}

// directory returns the path of the directory that copies lie in.
func (p *Place) directory() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", ErrClosed
	}
	if p.parent != nil {
		if _, err := os.Lstat(p.parent.Name()); errors.Is(err, fs.ErrNotExist) { // it was cleaned up
			_ = p.parent.Close()
			p.parent = nil
		}
	}
	if p.parent == nil {
		parent, err := makeLocked(p.Base())
		if err != nil {
			return "", err
		}
		p.parent = parent
	}
	return p.parent.Name(), nil
}

// Close removes all copies, used or not; no more can be made.
func (p *Place) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.parent == nil {
		return
	}
	if err := removeTree(p.parent.Name()); err != nil {
		p.log.Error().Msgf("remove the files of models: %v", err)
	}
	_ = p.parent.Close()
	p.parent = nil
}

// makeLocked makes a directory for copies. The lock on it tells other servers, and cleaners of temporary files, that it is
// in use.
func makeLocked(base string) (*os.File, error) {
	for {
		path, err := os.MkdirTemp(base, placePrefix)
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
