package cache_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/conda/cache"
)

// TestVerifyDescribesEachDifference damages an environment in one way at a time and checks the
// report.
func TestVerifyDescribesEachDifference(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(dir string) error
		want  string // the only line, or ""
		deep  bool   // found only by a deep comparison
	}{
		{"nothing", func(string) error { return nil }, "", false},
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "lib", "a.py")) }, "lib/a.py is missing", false},
		{"added", func(dir string) error { return os.WriteFile(filepath.Join(dir, "x y"), nil, 0o600) }, "x y was added", false},
		{"longer", func(dir string) error { return os.WriteFile(filepath.Join(dir, "lib", "a.py"), []byte("12345"), 0o600) }, "lib/a.py has 5 bytes, had 4", false},
		{"other bytes", func(dir string) error { return os.WriteFile(filepath.Join(dir, "lib", "a.py"), []byte("4321"), 0o600) }, "lib/a.py has different content", true},
		{"mode", func(dir string) error { return os.Chmod(filepath.Join(dir, "lib", "a.py"), 0o500) }, "lib/a.py has mode 0500, had 0644", false},
		{"opened to others", func(dir string) error { return os.Chmod(filepath.Join(dir, "lib"), 0o755) }, "", false},
		{"link", func(dir string) error {
			return replaced(filepath.Join(dir, "link"), func(path string) error { return os.Symlink("lib", path) })
		}, "link leads to lib, led to lib/a.py", false},
		{"kind", func(dir string) error {
			return replaced(filepath.Join(dir, "link"), func(path string) error { return os.Mkdir(path, 0o700) })
		}, "link is a directory, was a symbolic link", false},
		{"compiled", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "lib", "__pycache__", "a.cpython-312.pyc"), []byte("new"), 0o600)
		}, "", false},
		{"compiled anew", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "lib", "__pycache__")) }, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := open(t, cache.Options{Directory: t.TempDir()})
			env, err := c.Build(t.Context(), "key", func(_ context.Context, dir string) error {
				for name, mode := range map[string]fs.FileMode{"lib/a.py": 0o644, "lib/__pycache__/a.cpython-312.pyc": 0o644, "bin/\n\"python": 0o755} {
					path := filepath.Join(dir, name)
					if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
						return err
					}
					if err := os.WriteFile(path, []byte("1234"), mode); err != nil {
						return err
					}
				}
				return os.Symlink("lib/a.py", filepath.Join(dir, "link"))
			})
			if err != nil {
				t.Fatal(err)
			}
			defer env.Release()
			if err := test.spoil(env.Directory); err != nil {
				t.Fatal(err)
			}
			entries, err := c.List()
			if err != nil || len(entries) != 1 {
				t.Fatalf("List: got %v, %v, want one environment", entries, err)
			}
			for _, deep := range []bool{false, true} {
				want := test.want
				if test.deep && !deep {
					want = ""
				}
				damage, err := c.Verify(t.Context(), entries[0], deep)
				if got := strings.Join(damage, "; "); err != nil || got != want {
					t.Errorf("deep = %v: got %q, %v, want %q", deep, got, err, want)
				}
			}
		})
	}
}

func replaced(path string, by func(path string) error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by(path)
}
