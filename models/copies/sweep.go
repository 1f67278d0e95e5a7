package copies

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sweep removes the places of this user beside p whose servers were killed.
func (p *Place) Sweep() {
	entries, err := os.ReadDir(p.Base())
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), placePrefix) || !e.IsDir() {
			continue
		}
		if err := sweepOne(filepath.Join(p.Base(), e.Name())); err != nil {
			p.log.Warn().Msgf("remove the files of models that a server has left: %v", err)
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
