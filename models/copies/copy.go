package copies

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// Copy is one directory. It is removed when all users have dropped it.
type Copy struct {
	path  string
	users atomic.Int32
	log   zerolog.Logger
}

// Path returns the absolute path of the directory.
func (c *Copy) Path() string { return c.path }

// Hold adds a user. The caller is a user itself, or c is nil.
func (c *Copy) Hold() *Copy {
	if c != nil {
		c.users.Add(1)
	}
	return c
}

// TryHold adds a user unless the last one has gone.
func (c *Copy) TryHold() bool {
	for {
		// A count of zero is never raised: the directory may be half removed.
		n := c.users.Load()
		if n == 0 {
			return false
		}
		if c.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Used reports whether there is a user left. Once false, it stays false.
func (c *Copy) Used() bool { return c.users.Load() > 0 }

// Drop removes a user; the last one removes the directory.
func (c *Copy) Drop() {
	if c == nil || c.users.Add(-1) > 0 {
		return
	}
	if err := removeTree(c.path); err != nil {
		c.log.Error().Msgf("remove the copied files of an unloaded model: %v", err)
	}
}

// removeTree removes a directory, whatever modes a model has set in it.
func removeTree(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(at, 0o700)
		}
		return err
	})
	return os.RemoveAll(path)
}
