package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func folder(name string) archive.Entry {
	return archive.Entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: archive.Stamp}, ""}
}

func symlink(name, target string) archive.Entry {
	return archive.Entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: archive.Stamp}, ""}
}

func hardLink(name, target string) archive.Entry {
	return archive.Entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644, ModTime: archive.Stamp}, ""}
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

// compressed compresses data for a format. Python compresses bzip2 and xz.
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

// environment returns a small environment as conda-pack packs it: most directories have no entry.
func environment() []archive.Entry {
	return []archive.Entry{
		archive.Regular("bin/python3.12", "\x7fELF").WithMode(0o775),
		symlink("bin/python", "python3.12"),
		archive.Regular("lib/libfoo.so.1.2", strings.Repeat("library ", 100_000)).WithMode(0o555),
		symlink("lib/libfoo.so", "libfoo.so.1.2"),
		hardLink("lib/libbar.so", "lib/libfoo.so.1.2"),
		symlink("lib/terminfo", "../share/terminfo"),
		archive.Regular("share/terminfo/E/Eterm", "upper"),
		archive.Regular("share/terminfo/e/eterm", "lower"),
		archive.Regular("lib/python3.12/__pycache__/os.cpython-312.pyc", "code").WithMode(0o444),
		folder("conda-meta/"),
		archive.Regular("conda-meta/history", "").WithMode(0o600),
		archive.Regular("lib/python3.12/"+strings.Repeat("long", 60)+"/module.py", "pass"),
	}
}

func TestEveryFormatUnpacks(t *testing.T) {
	plain := archive.Pack(t, environment()...)
	for _, format := range []string{"tar", "tar.gz", "tar.zst", "tar.bz2", "tar.xz"} {
		t.Run(format, func(t *testing.T) {
			p := archive.NewDestination(t)
			data := compressed(t, format, plain)
			progress := &archive.Progress{}
			if err := p.Unpack(t, data, archive.Options{Progress: progress}); err != nil {
				t.Fatal(err)
			}
			got := [3]int64{progress.Read.Load(), progress.Written.Load(), progress.Files.Load()}
			if want := [3]int64{int64(len(data)), 800_000 + 22, 12 + 9}; got != want {
				t.Errorf("read, written and files: got %d, want %d", got, want)
			}
			p.IsEnvironment(t)
		})
	}
}

// TestModesIgnoreTheUmask unpacks under a umask that would make an environment unusable, and
// expects the archive's modes.
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
	if err := archive.Unpack(t.Context(), bytes.NewReader(archive.Pack(t, environment()...)), root, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	(&archive.Destination{Inside: inside, Root: root}).IsEnvironment(t)
}

func TestCancellationEndsEverything(t *testing.T) {
	data := gzipped(t, archive.Pack(t, environment()...))
	for _, after := range []int{0, 1, 600, len(data) - 1, len(data)} {
		p := archive.NewDestination(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("the model was unloaded")
		source := &stopping{data: data, after: after, stop: func() { cancel(stopped) }}
		if err := archive.Unpack(ctx, source, p.Root, archive.Options{}); !errors.Is(err, stopped) {
			t.Errorf("stopped after %d bytes: got error %v, want the cause of the context", after, err)
		}
		cancel(nil)
	}
}

// stopping is a reader that calls stop once it has returned that number of bytes, then continues.
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
		data := compressed(t, format, archive.Pack(t, environment()...))
		for _, at := range []int{0, 100, len(data) / 2, len(data) - 1} {
			p := archive.NewDestination(t)
			source := io.MultiReader(bytes.NewReader(data[:at]), failing{broken})
			if err := archive.Unpack(t.Context(), source, p.Root, archive.Options{}); !errors.Is(err, broken) {
				t.Errorf("%s: broken at %d of %d: got error %v, want that of the source", format, at, len(data), err)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
