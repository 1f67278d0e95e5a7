package python

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"syscall"
)

// unpack writes the Python files of this binary to a directory that is named by their content, and
// returns it. All servers of a user share this copy and Python's compiled files beside it. It tries
// the user's cache directory, then the system's temporary one.
func unpack(files ...fs.FS) (string, error) {
	contents, sum, err := collect(files)
	if err != nil {
		return "", err
	}
	var tried []error
	for _, parent := range cacheParents() {
		dir := filepath.Join(parent, "stub-"+sum[:16])
		err := unpackInto(dir, contents)
		if err == nil {
			return dir, nil
		}
		tried = append(tried, fmt.Errorf("in %s: %w", parent, err))
	}
	return "", fmt.Errorf("unpack the stub's Python files: %w", errors.Join(tried...))
}

func cacheParents() []string {
	var parents []string
	if dir, err := os.UserCacheDir(); err == nil {
		parents = append(parents, filepath.Join(dir, "nereid"))
	}
	return append(parents, filepath.Join(os.TempDir(), fmt.Sprintf("nereid-%d", os.Getuid())))
}

// collect returns all files by path, and a checksum of their paths and contents.
func collect(trees []fs.FS) (map[string][]byte, string, error) {
	contents := make(map[string][]byte)
	for _, tree := range trees {
		err := fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			contents[path], err = fs.ReadFile(tree, path)
			return err
		})
		if err != nil {
			return nil, "", err
		}
	}
	paths := make([]string, 0, len(contents))
	for path := range contents {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	h := sha256.New()
	for _, path := range paths {
		_, _ = fmt.Fprintf(h, "%d:%s%d:", len(path), path, len(contents[path]))
		h.Write(contents[path])
	}
	return contents, hex.EncodeToString(h.Sum(nil)), nil
}

// unpackInto uses dir if its contents are exactly as expected, and creates it if it does not exist.
// Files that another user could have written are not trusted.
func unpackInto(dir string, contents map[string][]byte) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if err := ownedByUs(parent); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		fresh, err := os.MkdirTemp(parent, "new-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(fresh)
		for path, content := range contents {
			path = filepath.Join(fresh, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				return err
			}
		}
		// Another server may have been faster: then its copy is checked below.
		if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	if err := ownedByUs(dir); err != nil {
		return err
	}
	for path, want := range contents {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s differs from the copy in this binary", filepath.Join(dir, path))
		}
	}
	return nil
}

func ownedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that this user alone can write (mode %s)", dir, info.Mode())
	}
	return nil
}
