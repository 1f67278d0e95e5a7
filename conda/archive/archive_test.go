package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stamp is the time of entries, with no fraction of a second, as tar has them.
var stamp = time.Unix(1_600_000_000, 0)

// entry is one entry of an archive that a test makes.
type entry struct {
	tar.Header
	content string
}

func regular(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: stamp}, content}
}

func folder(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: stamp}, ""}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: stamp}, ""}
}

func hardLink(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644, ModTime: stamp}, ""}
}

func (e entry) mode(mode int64) entry { e.Mode = mode; return e }

// pack makes a tar archive.
func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatalf("entry %q: %v", e.Name, err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstandard(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// compressed is data in the format of an archive; bzip2 and xz are Python's.
func compressed(t testing.TB, format string, data []byte) []byte {
	t.Helper()
	switch format {
	case "tar":
		return data
	case "tar.gz":
		return gzipped(t, data)
	case "tar.zst":
		return zstandard(t, data)
	}
	module := map[string]string{"tar.bz2": "bz2", "tar.xz": "lzma"}[format]
	python := exec.Command(testkit.Python(t).Path, "-c", "import sys, "+module+" as c; sys.stdout.buffer.write(c.compress(sys.stdin.buffer.read()))")
	python.Stdin = bytes.NewReader(data)
	out, err := python.Output()
	if err != nil {
		t.Fatalf("compress as %s: %v", format, err)
	}
	return out
}

// destination is a directory to unpack into, inside another one of which nothing may change.
type destination struct {
	around, inside string
	root           *os.Root
	before         string
}

func newDestination(t testing.TB) *destination {
	t.Helper()
	p := &destination{around: t.TempDir()}
	p.inside = filepath.Join(p.around, "deep", "inside")
	for _, err := range []error{
		os.MkdirAll(p.inside, 0o700),
		os.WriteFile(filepath.Join(p.around, "marker"), []byte("untouched"), 0o600),
		os.WriteFile(filepath.Join(p.around, "deep", "marker"), []byte("untouched"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.before = p.surroundings(t)
	var err error
	if p.root, err = os.OpenRoot(p.inside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.root.Close() })
	return p
}

// surroundings lists the files around the directory, with contents and times.
func (p *destination) surroundings(t testing.TB) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(p.around, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == p.inside {
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

// unpack unpacks an archive and fails the test if anything outside has changed.
func (p *destination) unpack(t testing.TB, data []byte, options Options) (Summary, error) {
	t.Helper()
	summary, err := Unpack(t.Context(), bytes.NewReader(data), p.root, options)
	if after := p.surroundings(t); after != p.before {
		t.Fatalf("outside of the directory is now\n%s\nwant\n%s", after, p.before)
	}
	return summary, err
}

// list lists the entries of a directory: "name kind content", sorted.
func (p *destination) list(t testing.TB) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(p.inside, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == p.inside {
			return err
		}
		name, err := filepath.Rel(p.inside, path)
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

// environment is a small environment as conda-pack makes it: most directories have no entry.
func environment() []entry {
	return []entry{
		regular("bin/python3.12", "\x7fELF").mode(0o775),
		symlink("bin/python", "python3.12"),
		regular("lib/libfoo.so.1.2", strings.Repeat("library ", 100_000)).mode(0o555),
		symlink("lib/libfoo.so", "libfoo.so.1.2"),
		hardLink("lib/libbar.so", "lib/libfoo.so.1.2"),
		symlink("lib/terminfo", "../share/terminfo"),
		regular("share/terminfo/E/Eterm", "upper"),
		regular("share/terminfo/e/eterm", "lower"),
		regular("lib/python3.12/__pycache__/os.cpython-312.pyc", "code").mode(0o444),
		folder("conda-meta/"),
		regular("conda-meta/history", "").mode(0o600),
		regular("lib/python3.12/"+strings.Repeat("long", 60)+"/module.py", "pass"),
	}
}

func TestEveryFormatUnpacks(t *testing.T) {
	plain := pack(t, environment()...)
	for _, format := range []string{"tar", "tar.gz", "tar.zst", "tar.bz2", "tar.xz"} {
		t.Run(format, func(t *testing.T) {
			p := newDestination(t)
			data := compressed(t, format, plain)
			progress := &Progress{}
			summary, err := p.unpack(t, data, Options{Progress: progress})
			if err != nil {
				t.Fatal(err)
			}
			want := Summary{Format: format, Read: int64(len(data)), Written: 800_000 + 22, Files: 12 + 9}
			if summary != want {
				t.Errorf("got %+v, want %+v", summary, want)
			}
			if progress.Read.Load() != want.Read || progress.Written.Load() != want.Written || progress.Files.Load() != want.Files {
				t.Errorf("got progress %d %d %d, want %+v", progress.Read.Load(), progress.Written.Load(), progress.Files.Load(), want)
			}
			p.isEnvironment(t)
		})
	}
}

// isEnvironment compares the directory with environment.
func (p *destination) isEnvironment(t *testing.T) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		"bin/python3.12": 0o755, "lib/libfoo.so.1.2": 0o755, "lib/libbar.so": 0o755, "share/terminfo/E/Eterm": 0o644,
		"lib/python3.12/__pycache__/os.cpython-312.pyc": 0o644, "conda-meta/history": 0o600, "conda-meta": 0o755 | fs.ModeDir,
		"lib": 0o755 | fs.ModeDir, "bin/python": 0o777 | fs.ModeSymlink,
	} {
		info, err := os.Lstat(filepath.Join(p.inside, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), mode)
		}
		if name != "lib" && !info.ModTime().Equal(stamp) {
			t.Errorf("%s: got time %v, want %v", name, info.ModTime(), stamp)
		}
	}
	for name, want := range map[string]string{
		"bin/python": "\x7fELF", "lib/libfoo.so": strings.Repeat("library ", 100_000), "lib/terminfo/E/Eterm": "upper",
		"lib/terminfo/e/eterm": "lower", "conda-meta/history": "", "lib/python3.12/" + strings.Repeat("long", 60) + "/module.py": "pass",
	} {
		if got, err := os.ReadFile(filepath.Join(p.inside, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes and error %v, want %d bytes", name, len(got), err, len(want))
		}
	}
	first, err := os.Stat(filepath.Join(p.inside, "lib/libfoo.so"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(filepath.Join(p.inside, "lib/libbar.so"))
	if err != nil || !os.SameFile(first, second) {
		t.Errorf("the hard link is another file than its target (error %v)", err)
	}
	if err := Sync(p.root); err != nil {
		t.Errorf("Sync: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(p.inside, "lib")); err != nil {
		t.Errorf("what was unpacked cannot be removed: %v", err)
	}
}

// TestModesAreThoseOfTheArchive under a umask that would take away what makes an
// environment work.
func TestModesIgnoreTheUmask(t *testing.T) {
	if os.Getenv("NEREID_TEST_UMASK") == "" {
		again := exec.Command("sh", "-c", "umask 0777; exec "+os.Args[0]+" -test.run '^TestModesIgnoreTheUmask$'")
		inside := t.TempDir()
		again.Env = append(os.Environ(), "NEREID_TEST_UMASK="+inside)
		if out, err := again.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	inside := os.Getenv("NEREID_TEST_UMASK")
	root, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Unpack(t.Context(), bytes.NewReader(pack(t, environment()...)), root, Options{}); err != nil {
		t.Fatal(err)
	}
	(&destination{inside: inside, root: root}).isEnvironment(t)
}

// wantError checks an error's text and type.
func wantError(t testing.TB, err error, want string) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || err.Error() != want {
		t.Errorf("got  %v (%T)\nwant %s", err, err, want)
	}
}

func TestCancellationEndsEverything(t *testing.T) {
	data := gzipped(t, pack(t, environment()...))
	for _, after := range []int{0, 1, 600, len(data) - 1, len(data)} {
		p := newDestination(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("the model was unloaded")
		source := &stopping{data: data, after: after, stop: func() { cancel(stopped) }}
		if _, err := Unpack(ctx, source, p.root, Options{}); !errors.Is(err, stopped) {
			t.Errorf("stopped after %d bytes: got error %v, want the cause of the context", after, err)
		}
		cancel(nil)
	}
}

// stopping calls stop after a number of bytes, and goes on.
type stopping struct {
	data        []byte
	done, after int
	stop        func()
}

func (s *stopping) Read(p []byte) (int, error) {
	if s.done == s.after {
		s.stop()
	}
	n := copy(p, s.data[s.done:])
	if s.done < s.after {
		n = min(n, s.after-s.done)
	}
	if s.done += n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestErrorsOfTheSourceAreReturned(t *testing.T) {
	broken := errors.New("input/output error")
	for _, format := range []string{"tar", "tar.gz", "tar.zst", "tar.bz2", "tar.xz"} {
		data := compressed(t, format, pack(t, environment()...))
		for _, at := range []int{0, 100, len(data) / 2, len(data) - 1} {
			p := newDestination(t)
			source := io.MultiReader(bytes.NewReader(data[:at]), failing{broken})
			if _, err := Unpack(t.Context(), source, p.root, Options{}); !errors.Is(err, broken) {
				t.Errorf("%s: broken at %d of %d: got error %v, want that of the source", format, at, len(data), err)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
