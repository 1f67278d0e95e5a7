package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Memfd backs regions by unnamed files, sealed against changes of size: they
// are not limited by the size of /dev/shm, cannot be opened by others, and go
// with the last process that holds them.
type Memfd struct{}

func (Memfd) sealed() bool { return true }

func (Memfd) create(size int64) (*os.File, func() error, error) {
	fd, err := unix.MemfdCreate("nereid", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("create memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:nereid")
	if err := unix.Ftruncate(fd, size); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("set memfd's size to %d bytes: %w", size, err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("seal memfd: %w", err)
	}
	return file, nil, nil
}

// Named backs regions by POSIX shared-memory objects, /dev/shm/<Prefix><random>:
// created exclusively, readable by their owner alone. Unlink takes the name away
// as soon as nobody needs it any more.
type Named struct {
	Prefix string
	Dir    string // default /dev/shm
}

func (Named) sealed() bool { return false }

// Validate checks the prefix, with Triton's texts.
func (n Named) Validate() error {
	if n.Prefix == "" {
		return errors.New("shm-region-prefix-name must at least contain one character.")
	}
	if strings.ContainsAny(n.Prefix, ";|&$`<>()[]{}\\\"'*?~#!") {
		return errors.New("Invalid shared memory region name: contains invalid characters")
	}
	if strings.Contains(n.Prefix, "/") {
		return fmt.Errorf("shm-region-prefix-name is %q, want a name without \"/\"", n.Prefix)
	}
	return nil
}

func (n Named) create(size int64) (*os.File, func() error, error) {
	if err := n.Validate(); err != nil {
		return nil, nil, err
	}
	dir := n.Dir
	if dir == "" {
		dir = "/dev/shm"
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, n.Prefix+hex.EncodeToString(random[:]))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("create shared memory object: %w", err)
	}
	unlink := func() error { return os.Remove(path) }
	if err := file.Truncate(size); err != nil {
		_ = unlink()
		_ = file.Close()
		return nil, nil, fmt.Errorf("set the shared memory object's size to %d bytes: %w", size, err)
	}
	return file, unlink, nil
}
