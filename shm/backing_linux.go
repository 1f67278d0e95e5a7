package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Memfd backs regions by unnamed files, sealed against changes of size: the size of /dev/shm does
// not limit them, other users cannot open them, and they end with the last process that holds them.
type Memfd struct{}

// memfdMode keeps other users from reopening a descriptor through /proc. The owner cannot open one
// for writing either, unless it changes the mode back, which only a seal could prevent (see
// WriteAlone).
const memfdMode = 0o400

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
	if err := unix.Fchmod(fd, memfdMode); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("set memfd's mode: %w", err)
	}
	return file, nil, nil
}

func (Memfd) seal(file *os.File, access Access) error {
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if access == WriteAlone {
		_, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE)
		if err == nil {
			return nil
		}
		if err != unix.EINVAL { // Linux before 5.1 does not know it
			return fmt.Errorf("seal memfd: %w", err)
		}
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	return nil
}

// Named backs regions by POSIX shared-memory objects, /dev/shm/<Prefix><random>: created
// exclusively, readable by their owner alone. Unlink removes the name as soon as no process needs
// it.
type Named struct {
	Prefix string
	Dir    string      // default /dev/shm
	Files  *NamedFiles // records the files while they have names; nil: nothing does
}

// NamedFiles records the files of regions that can be opened by a name, so that none is mistaken
// for another program's. Its zero value is ready.
type NamedFiles struct {
	mu    sync.Mutex
	files map[fileID]struct{} // bound: the open files
}

// fileID identifies a file to the kernel.
type fileID struct{ device, inode uint64 }

// Has reports whether a file is a region's.
func (f *NamedFiles) Has(device, inode uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.files[fileID{device, inode}]
	return ok
}

// enter adds a file and returns a function that removes it.
func (f *NamedFiles) enter(file *os.File) (leave func(), err error) {
	if f == nil {
		return func() {}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	id := fileID{st.Dev, st.Ino}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = map[fileID]struct{}{}
	}
	f.files[id] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.files, id)
	}, nil
}

func (Named) sealed() bool { return false }

func (Named) seal(*os.File, Access) error { return nil }

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
	leave, err := n.Files.enter(file)
	if err != nil {
		_ = os.Remove(path)
		_ = file.Close()
		return nil, nil, fmt.Errorf("look at the shared memory object: %w", err)
	}
	// The entry is removed after the name, while the file is open: its inode is not reused yet.
	unlink := func() error { defer leave(); return os.Remove(path) }
	if err := file.Truncate(size); err != nil {
		_ = unlink()
		_ = file.Close()
		return nil, nil, fmt.Errorf("set the shared memory object's size to %d bytes: %w", size, err)
	}
	return file, unlink, nil
}
