package copies

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sweep removes this user's workspaces in the same directory whose servers were killed.
func (w *Workspace) Sweep() {
	entries, err := os.ReadDir(w.Base())
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), namePrefix) || !e.IsDir() {
			continue
		}
		if err := sweepOne(filepath.Join(w.Base(), e.Name())); err != nil {
			w.log.Warn().Msgf("remove the copied files of a previous server: %v", err)
		}
	}
}

func sweepOne(path string) error {
	directory, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil //nolint:nilerr // it is another user's, or gone
	}
	defer directory.Close()
	info, err := directory.Stat()
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != os.Getuid() || unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return removeTree(path)
}
