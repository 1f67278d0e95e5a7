package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Stamp is the time of entries, in whole seconds as tar stores them.
var Stamp = time.Unix(1_600_000_000, 0)

// Entry is one entry of a test archive.
type Entry struct {
	tar.Header
	Content string
}

func (e Entry) WithMode(mode int64) Entry { e.Mode = mode; return e }

func Regular(name, content string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: Stamp}, content}
}

// Pack returns a tar archive of entries.
func Pack(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.Content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatalf("entry %q: %v", e.Name, err)
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Destination is a directory to unpack into. Nothing in the directory around it may change.
type Destination struct {
	Around, Inside string
	Root           *os.Root
	before         string
}

// surroundings lists the files outside the directory with contents and times.
func (p *Destination) surroundings(t testing.TB) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(p.Around, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == p.Inside {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&list, path, info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			fmt.Fprintf(&list, "%s %v\n", content, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// Unpack unpacks an archive and fails the test if anything outside has changed.
func (p *Destination) Unpack(t testing.TB, data []byte, options Options) error {
	t.Helper()
	err := Unpack(t.Context(), bytes.NewReader(data), p.Root, options)
	if after := p.surroundings(t); after != p.before {
		t.Fatalf("outside of the directory is now\n%s\nwant\n%s", after, p.before)
	}
	return err
}

// List returns the directory's entries, sorted, with kind and content.
func (p *Destination) List(t testing.TB) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(p.Inside, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == p.Inside {
			return err
		}
		name, err := filepath.Rel(p.Inside, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			list = append(list, name+" directory")
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			list = append(list, name+" -> "+target)
		default:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			list = append(list, name+" = "+string(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// IsEnvironment checks that the directory contains environment's entries.
func (p *Destination) IsEnvironment(t *testing.T) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		"bin/python3.12": 0o755, "lib/libfoo.so.1.2": 0o755, "lib/libbar.so": 0o755, "share/terminfo/E/Eterm": 0o644,
		"lib/python3.12/__pycache__/os.cpython-312.pyc": 0o644, "conda-meta/history": 0o600, "conda-meta": 0o755 | fs.ModeDir,
		"lib": 0o755 | fs.ModeDir, "bin/python": 0o777 | fs.ModeSymlink,
	} {
		info, err := os.Lstat(filepath.Join(p.Inside, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), mode)
		}
		if name != "lib" && !info.ModTime().Equal(Stamp) {
			t.Errorf("%s: got time %v, want %v", name, info.ModTime(), Stamp)
		}
	}
	for name, want := range map[string]string{
		"bin/python": "\x7fELF", "lib/libfoo.so": strings.Repeat("library ", 100_000), "lib/terminfo/E/Eterm": "upper",
		"lib/terminfo/e/eterm": "lower", "conda-meta/history": "", "lib/python3.12/" + strings.Repeat("long", 60) + "/module.py": "pass",
	} {
		if got, err := os.ReadFile(filepath.Join(p.Inside, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes and error %v, want %d bytes", name, len(got), err, len(want))
		}
	}
	first, err := os.Stat(filepath.Join(p.Inside, "lib/libfoo.so"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(filepath.Join(p.Inside, "lib/libbar.so"))
	if err != nil || !os.SameFile(first, second) {
		t.Errorf("the hard link is another file than its target (error %v)", err)
	}
	if err := Sync(p.Root); err != nil {
		t.Errorf("Sync: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(p.Inside, "lib")); err != nil {
		t.Errorf("what was unpacked cannot be removed: %v", err)
	}
}

func NewDestination(t testing.TB) *Destination {
	t.Helper()
	p := &Destination{Around: t.TempDir()}
	p.Inside = filepath.Join(p.Around, "deep", "inside")
	for _, err := range []error{
		os.MkdirAll(p.Inside, 0o700),
		os.WriteFile(filepath.Join(p.Around, "marker"), []byte("untouched"), 0o600),
		os.WriteFile(filepath.Join(p.Around, "deep", "marker"), []byte("untouched"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.before = p.surroundings(t)
	var err error
	if p.Root, err = os.OpenRoot(p.Inside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Root.Close() })
	return p
}

// WantError checks an error's text and type.
func WantError(t testing.TB, err error, want string) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || err.Error() != want {
		t.Errorf("got  %v (%T)\nwant %s", err, err, want)
	}
}

// LinksStayInside checks that no link leads outside. If the archive was refused, links that are
// checked last may do so.
func (p *Destination) LinksStayInside(t *testing.T, seed uint64, refused bool) {
	t.Helper()
	inside, err := filepath.EvalSymlinks(p.Inside)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range p.List(t) {
		name, target, isLink := strings.Cut(line, " -> ")
		if !isLink || refused && strings.Contains(strings.TrimLeft(target, "./"), "..") {
			continue
		}
		end, err := filepath.EvalSymlinks(filepath.Join(p.Inside, name))
		if err == nil && end != inside && !strings.HasPrefix(end, inside+"/") {
			t.Errorf("seed %d: %s leads to %s, outside of %s", seed, line, end, inside)
		}
	}
}
