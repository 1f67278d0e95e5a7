package cache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// layout is the number of the layout in doc.go, stored in the file "format" of a cache.
const layout = "1\n"

// The directories of a store.
const (
	recordsDir   = "records"
	manifestsDir = "manifests"
	indexDir     = "index"
	locksDir     = "locks"
	newDir       = "new"
)

var furniture = []string{recordsDir, manifestsDir, indexDir, locksDir, newDir}

// store is one cache directory.
type store struct {
	root      string // absolute, free of symbolic links
	pathKey   string // identifies root in names of records, because environments work only at one path
	writable  bool   // by this user
	furnished bool   // ready for environments to be made
	private   *lock  // of a temporary directory of this process; else nil
}

// environmentName matches names of environments. Nothing else in a cache is ever removed as one.
var environmentName = regexp.MustCompile(`^[0-9a-f]{12}-[0-9a-f]{8}$`)

// openStore returns the store at a directory as it is; the error is fs.ErrNotExist if the directory
// is missing.
func openStore(root string) (*store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	if err := trusted(root); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(root)) // bound: the operator's path
	s := &store{root: root, pathKey: hex.EncodeToString(sum[:4])}
	s.writable = unix.Faccessat(unix.AT_FDCWD, root, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
	format, err := os.ReadFile(s.path("format")) // bound: what furnish writes
	if err != nil && !isAbsent(err) {
		return nil, err
	}
	if err == nil && string(format) != layout {
		return nil, fmt.Errorf("the cache directory %s has the layout %q, want %q: another version of Nereid made it; name another directory or remove this one",
			root, strings.TrimSpace(string(format)), strings.TrimSpace(layout))
	}
	return s, nil
}

// makeStore returns the store at a directory, ready for new environments.
func makeStore(root string) (*store, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	s, err := openStore(root)
	if err != nil {
		return nil, err
	}
	if !s.writable {
		return nil, &os.PathError{Op: "write to", Path: s.root, Err: fs.ErrPermission}
	}
	return s, s.furnish()
}

// furnish makes the directories of a store. They may exist already, and several processes may do it
// concurrently.
func (s *store) furnish() error {
	for _, dir := range furniture {
		if err := os.Mkdir(s.path(dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	probe, err := tryLock(s.path(locksDir, "probe"), shared, true)
	if err != nil && !errors.Is(err, errHeld) {
		return err
	}
	probe.release()
	for name, text := range map[string]string{"format": layout, "CACHEDIR.TAG": cacheTag} {
		if _, err := os.Lstat(s.path(name)); isAbsent(err) {
			if err := s.write([]byte(text), name); err != nil { // bound: two constants
				return err
			}
		}
	}
	s.furnished = true
	return nil
}

// cacheTag makes backup programs skip a directory (https://bford.info/cachedir/).
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55\n# Environments of Nereid, which can be recreated.\n"

// trusted checks that only this user and root can have written to a directory.
func trusted(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("the cache directory %s is not a directory", dir)
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("the cache directory %s belongs to user %d, want user %d, which this process runs as, or root: name another with env-cache-directory",
			dir, stat.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the cache directory %s can be written by other users (mode %04o): run chmod go-w %[1]s, or name a new directory inside it with env-cache-directory",
			dir, info.Mode().Perm())
	}
	return nil
}

// stands reports whether the store still exists: someone may have removed it by hand.
func (s *store) stands() bool {
	for _, dir := range furniture {
		if _, err := os.Lstat(s.path(dir)); err != nil {
			return false
		}
	}
	return true
}

func (s *store) path(elements ...string) string {
	return filepath.Join(append([]string{s.root}, elements...)...) // bound: the callers' two elements
}

// directory returns the directory of an environment.
func (s *store) directory(name string) string { return s.path(name) }

func (s *store) environmentLock(name string) string { return s.path(locksDir, name+".env") }

func (s *store) sourceLock(key string) string { return s.path(locksDir, key+".source") }

// write writes a file of a store atomically: others see it with all of data, or its previous state,
// even after a power loss.
func (s *store) write(data []byte, elements ...string) error {
	return s.writeFrom(func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}, elements...)
}

// writeFrom is write with a function that writes the data.
func (s *store) writeFrom(data func(to io.Writer) error, elements ...string) error {
	for {
		fresh := s.path(newDir, randomHex(8))
		// The lock tells sweep that the file does not belong to a killed process.
		l, err := tryLock(fresh, exclusive, true)
		if errors.Is(err, errHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if err = s.fill(l, data, elements); err != nil {
			_ = os.Remove(fresh)
		}
		l.release()
		return err
	}
}

func (s *store) fill(l *lock, data func(to io.Writer) error, elements []string) error {
	if err := data(l.file); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	path := s.path(elements...)
	if err := os.Rename(l.path, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Some file systems cannot do this for directories, and need not.
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

func randomHex(bytes int) string {
	random := make([]byte, bytes) // bound: the callers' constants
	_, _ = rand.Read(random)      // it never fails
	return hex.EncodeToString(random)
}

// removeAll removes a directory tree, including directories that their owner cannot write.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			// Before ReadDir of it: WalkDir calls this first. A directory that cannot be made writable makes
			// RemoveAll fail.
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
