package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/stub"
)

// unpackTrees are the file trees that these tests unpack.
var unpackTrees = []fs.FS{
	fstest.MapFS{"a.py": {Data: []byte("a = 1\n")}, "sub/b.py": {Data: []byte("b = 2\n")}},
	fstest.MapFS{"c": {Data: []byte("c\n")}},
}

// unpackHomes sets up the two directories that unpack tries. It returns the parents that unpack
// creates in them.
func unpackHomes(t *testing.T) (parents [2]string) {
	t.Helper()
	cache, temporary := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TMPDIR", temporary)
	copy(parents[:], cacheParents())
	if filepath.Dir(parents[0]) != cache || filepath.Dir(parents[1]) != temporary {
		t.Fatalf("unpack tries %v, want directories in %s and %s", parents, cache, temporary)
	}
	return parents
}

// mustUnpack unpacks and checks that all files exist and only their owner can read them.
func mustUnpack(t *testing.T) (dir string) {
	t.Helper()
	dir, err := unpack(unpackTrees...)
	if err != nil {
		t.Fatalf("unpack: got error %v", err)
	}
	for path, want := range map[string]string{"a.py": "a = 1\n", "sub/b.py": "b = 2\n", "c": "c\n"} {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, error %v, want %q", path, got, err, want)
		}
		for _, name := range []string{path, filepath.Dir(path)} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: got mode %v, error %v, want one for the owner alone", name, info.Mode(), err)
			}
		}
	}
	return dir
}

func TestUnpackReusesTheCopy(t *testing.T) {
	parents := unpackHomes(t)
	dir := mustUnpack(t)
	if filepath.Dir(dir) != parents[0] {
		t.Errorf("unpacked to %s, want it in %s", dir, parents[0])
	}
	before, err := os.Stat(filepath.Join(dir, "a.py"))
	if err != nil {
		t.Fatal(err)
	}
	// Files that Python adds are left alone.
	if err := os.Mkdir(filepath.Join(dir, "__pycache__"), 0o700); err != nil {
		t.Fatal(err)
	}
	if again := mustUnpack(t); again != dir {
		t.Errorf("unpacked to %s, want %s again", again, dir)
	}
	after, err := os.Stat(filepath.Join(dir, "a.py"))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("a.py was written anew (error %v)", err)
	}
	other, err := unpack(unpackTrees[0])
	if err != nil || other == dir {
		t.Errorf("other files: got %s, error %v, want a directory of their own", other, err)
	}
}

// TestUnpackDistrustsStrangeCaches damages the cache. unpack uses the next directory, and fails if
// that is damaged, too.
func TestUnpackDistrustsStrangeCaches(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(dir string) error // dir has the unpacked files
		want  string                 // part of the error
	}{
		"damaged file": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "sub", "b.py"), []byte("b = 3\n"), 0o600)
		}, "differs from the copy in this binary"},
		"file cut off": {func(dir string) error { return os.Truncate(filepath.Join(dir, "a.py"), 0) }, "differs from the copy in this binary"},
		"missing file": {func(dir string) error { return os.Remove(filepath.Join(dir, "c")) }, "no such file"},
		"others write": {func(dir string) error { return os.Chmod(dir, 0o777) }, "not a directory that this user alone can write"},
		"group writes": {func(dir string) error { return os.Chmod(dir, 0o770) }, "not a directory that this user alone can write"},
		"others write above": {func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
			"not a directory that this user alone can write"},
		"link": {func(dir string) error {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				return err
			}
			return os.Symlink(dir+"-moved", dir)
		}, "not a directory that this user alone can write"},
		"file in its place": {func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		}, "not a directory that this user alone can write"},
		"other owner":       {func(dir string) error { return os.Chown(dir, 65534, 65534) }, "not a directory that this user alone can write"},
		"other owner above": {func(dir string) error { return os.Chown(filepath.Dir(dir), 65534, -1) }, "not a directory that this user alone can write"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "other owner") && os.Getuid() != 0 {
				t.Skip("only root gives files away")
			}
			parents := unpackHomes(t)
			if err := test.spoil(mustUnpack(t)); err != nil {
				t.Fatal(err)
			}
			dir := mustUnpack(t)
			if filepath.Dir(dir) != parents[1] {
				t.Errorf("unpacked to %s, want it in %s", dir, parents[1])
			}
			if err := test.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if dir, err := unpack(unpackTrees...); err == nil || strings.Count(err.Error(), test.want) != 2 {
				t.Errorf("got %s, error %v, want one that says %q of both directories", dir, err, test.want)
			}
		})
	}
}

// TestUnpackWhereNothingCanBeWritten puts a file where the cache directory should be.
func TestUnpackWhereNothingCanBeWritten(t *testing.T) {
	parents := unpackHomes(t)
	if err := os.WriteFile(parents[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dir := mustUnpack(t); filepath.Dir(dir) != parents[1] {
		t.Errorf("unpacked to %s, want it in %s", dir, parents[1])
	}
}

// TestUnpackAtOnceSharesOneCopy starts many servers at once. All use one copy, and nothing else is
// left.
func TestUnpackAtOnceSharesOneCopy(t *testing.T) {
	for range 20 {
		parents := unpackHomes(t)
		var wg sync.WaitGroup
		var dirs [8]string
		var errs [8]error
		begin := make(chan struct{})
		for i := range dirs {
			wg.Go(func() {
				<-begin
				dirs[i], errs[i] = unpack(unpackTrees...)
			})
		}
		close(begin)
		wg.Wait()
		for i := range dirs {
			if errs[i] != nil || dirs[i] != dirs[0] {
				t.Fatalf("server %d: got %s, error %v, want %s", i, dirs[i], errs[i], dirs[0])
			}
		}
		mustUnpack(t)
		if left, err := os.ReadDir(parents[0]); err != nil || len(left) != 1 {
			t.Errorf("in %s: got %v, error %v, want one directory", parents[0], left, err)
		}
	}
}

// TestFilesAreUnpackedOnce checks that servers of one user share a copy, and that a modified copy
// is not used.
func TestFilesAreUnpackedOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	b, err := New(Environment{Files: []fs.FS{stub.Files, pyutils.Files}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := unpack(stub.Files, pyutils.Files)
	if err != nil || again != b.dir {
		t.Errorf("unpack again: got %q, error %v, want %q", again, err, b.dir)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "pb_stub", "loop.py"), []byte("import os\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	other, err := unpack(stub.Files, pyutils.Files)
	if err != nil || other == b.dir {
		t.Errorf("unpack beside a changed copy: got %q, error %v, want another place", other, err)
	}
}
