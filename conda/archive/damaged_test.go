package archive_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/conda/archive"
	"github.com/nereid-serving/nereid/internal/testkit"
)

var allFormats = []string{"tar", "tar.gz", "tar.zst", "tar.bz2", "tar.xz"}

// noise returns n incompressible bytes.
func noise(n int) string {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return string(content)
}

// solid returns an archive that hardly compresses, so that each part of the compressed form
// matters.
func solid(t testing.TB) []byte {
	t.Helper()
	return archive.Pack(t, archive.Regular("bin/python", noise(12_000)), folder("lib/"), archive.Regular("lib/a", noise(20_000)), symlink("lib/b", "a"),
		archive.Regular("lib/c", "short"), archive.Regular("lib/d", noise(600)))
}

func TestCutOffArchivesAreRefused(t *testing.T) {
	for _, format := range allFormats {
		t.Run(format, func(t *testing.T) {
			data := compressed(t, format, solid(t))
			end := len(data)
			if format == "tar" {
				end -= archive.BlockSize // the end mark's second block is optional
			}
			cuts := []int{0, 1, 3, 100, 511, 512, 513, 1024, end - 1, end - 4, end - 8, end - archive.BlockSize}
			for i := range 50 {
				cuts = append(cuts, i*end/50)
			}
			for _, cut := range cuts {
				err := archive.NewDestination(t).Unpack(t, data[:cut], archive.Options{})
				var refused *archive.Error
				if !errors.As(err, &refused) {
					t.Errorf("cut off after %d of %d bytes: got error %v, want an Error", cut, len(data), err)
				}
			}
		})
	}
}

func TestCutOffArchivesAreNamed(t *testing.T) {
	data := archive.Pack(t, archive.Regular("a", "12345"), archive.Regular("b", noise(2000)))
	for _, test := range []struct {
		data []byte
		want string
	}{
		{nil, "archive_read_open_filename() failed.: the file is empty"},
		{[]byte("PK\x03\x04 and so on"), "archive_read_open_filename() failed.: the file is a zip archive; pack the environment as tar.gz or tar.zst"},
		{[]byte("#!/bin/sh\n"), "archive_read_open_filename() failed.: the file begins with 23 21 2f 62 69 6e 2f 73 and is not a tar archive, plain or compressed with gzip, zstd, bzip2 or xz"},
		{data[:300], "archive_read_open_filename() failed.: the file begins with 61 00 00 00 00 00 00 00 and is not a tar archive, plain or compressed with gzip, zstd, bzip2 or xz"},
		{data[:1024], `archive_read_next_header() failed with error code = -30 error message is the archive is cut off after entry "a"`},
		{data[:1300], `archive_read_next_header() failed with error code = -30 error message is the archive is cut off after entry "a"`},
		{data[:2000], `entry "b": archive_read_data_block() failed with error code = -30: the archive is cut off after 464 of the entry's 2000 bytes`},
		{gzipped(t, data)[:200], `entry "b": archive_read_data_block() failed with error code = -30: the archive is cut off after `},
		{gzipped(t, data[:1024]), `archive_read_next_header() failed with error code = -30 error message is the archive is cut off after entry "a"`},
		{gzipped(t, []byte("no tar archive at all")), "archive_read_next_header() failed with error code = -30 error message is the archive is cut off before its first entry"},
		{gzipped(t, make([]byte, 10240)), "the archive has no entries"},
		{make([]byte, 10240), "the archive has no entries"},
	} {
		err := archive.NewDestination(t).Unpack(t, test.data, archive.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}

// TestFlippedBits checks that an archive with a flipped bit is refused or unpacks unchanged if its
// format has a checksum. A bare tar may only fail with an Error.
func TestFlippedBits(t *testing.T) {
	good := archive.NewDestination(t)
	if err := good.Unpack(t, solid(t), archive.Options{}); err != nil {
		t.Fatal(err)
	}
	want := good.List(t)
	for _, format := range allFormats {
		t.Run(format, func(t *testing.T) {
			data := compressed(t, format, solid(t))
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 60 {
				at := random.IntN(len(data))
				if i < 20 {
					at = i // headers are the most sensitive part
				}
				flipped := slices.Clone(data)
				flipped[at] ^= 1 << random.IntN(8)
				p := archive.NewDestination(t)
				err := p.Unpack(t, flipped, archive.Options{})
				var refused *archive.Error
				switch {
				case err != nil && !errors.As(err, &refused):
					t.Errorf("byte %d: got error %v (%T), want an Error", at, err, err)
				case err == nil && format != "tar" && !slices.Equal(p.List(t), want):
					t.Errorf("byte %d: unpacked to something else, without an error", at)
				}
			}
		})
	}
}

func TestBytesAfterTheEndOfAnArchive(t *testing.T) {
	plain := archive.Pack(t, archive.Regular("a", "x"))
	other := archive.Pack(t, archive.Regular("b", "y"))
	const (
		follows = "after its last entry: unrelated bytes follow the end of the archive"
		damaged = "archive_read_next_header() failed with error code = -30 error message is the archive is damaged after entry \"a\": "
		cut     = "archive_read_next_header() failed with error code = -30 error message is the archive is cut off after entry \"a\""
	)
	gz, zst := gzipped(t, plain), zstandard(t, plain)
	skippable := binary.LittleEndian.AppendUint32([]byte("\x50\x2a\x4d\x18"), 4)
	skippable = append(skippable, "skip"...)
	zeros := make([]byte, 20_000)
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"tar and zeros", slices.Concat(plain, zeros), ""},
		{"tar without its second block of zeros", plain[:len(plain)-archive.BlockSize], ""},
		{"tar without an end", plain[:len(plain)-2*archive.BlockSize], cut},
		{"tar and garbage", slices.Concat(plain, []byte("garbage")), follows},
		{"tar and a tar", slices.Concat(plain, other), follows},
		{"tar and zeros and garbage", slices.Concat(plain, zeros, []byte("garbage")), follows},
		{"gzip and zeros", slices.Concat(gz, zeros), ""},
		{"gzip and garbage", slices.Concat(gz, []byte("garbage")), follows},
		{"gzip and one byte", slices.Concat(gz, []byte{0x1f}), follows},
		{"gzip and the beginning of a member", slices.Concat(gz, gz[:5]), cut},
		{"gzip in two members", slices.Concat(gzipped(t, plain[:700]), gzipped(t, plain[700:])), ""},
		{"gzip in three members, one empty", slices.Concat(gzipped(t, plain[:1]), gzipped(t, nil), gzipped(t, plain[1:])), ""},
		{"two archives in members", slices.Concat(gz, gzipped(t, other)), follows},
		{"gzip of garbage behind the end", gzipped(t, slices.Concat(plain, []byte("garbage"))), follows},
		{"zstd in two frames", slices.Concat(zstandard(t, plain[:700]), zstandard(t, plain[700:])), ""},
		{"zstd behind a skippable frame", slices.Concat(skippable, zst, skippable), ""},
		{"zstd and garbage", slices.Concat(zst, []byte("garbage")), damaged},
		{"bzip2 and garbage", slices.Concat(compressed(t, "tar.bz2", plain), []byte("garbage")), damaged},
		{"xz and garbage", slices.Concat(compressed(t, "tar.xz", plain), []byte("garbage!")), damaged},
		{"xz in two streams", slices.Concat(compressed(t, "tar.xz", plain[:700]), compressed(t, "tar.xz", plain[700:])), ""},
		{"bzip2 in two streams", slices.Concat(compressed(t, "tar.bz2", plain[:700]), compressed(t, "tar.bz2", plain[700:])), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := archive.NewDestination(t)
			var progress archive.Progress
			err := p.Unpack(t, test.data, archive.Options{Progress: &progress})
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case test.want == "" && (progress.Read.Load() != int64(len(test.data)) || !slices.Equal(p.List(t), []string{"a = x"})):
				t.Errorf("got %d bytes read and %q, want all %d and a", progress.Read.Load(), p.List(t), len(test.data))
			case test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)):
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestNamesAreNoFormat checks that a bare tar whose first entry's name looks like another format's
// magic is read as tar.
func TestNamesAreNoFormat(t *testing.T) {
	for _, name := range []string{"BZh9", "\x28\xb5\x2f\xfd", "PK\x03\x04"} {
		p := archive.NewDestination(t)
		e := archive.Entry{tar.Header{Format: tar.FormatGNU, Typeflag: tar.TypeReg, Name: name}, "x"}
		err := p.Unpack(t, archive.Pack(t, e), archive.Options{})
		if strings.ContainsAny(name, "\x03") {
			if err == nil || !strings.Contains(err.Error(), "control character") {
				t.Errorf("%q: got error %v, want one about its name", name, err)
			}
		} else if err != nil {
			t.Errorf("%q: got error %v, want none", name, err)
		}
	}
}

// TestBombsAreRefused checks that ten gigabytes of zeros in a few hundred kilobytes are refused
// early and use little memory.
func TestBombsAreRefused(t *testing.T) {
	head := archive.Regular("zeros", "")
	head.Size = 10 << 30
	var header bytes.Buffer
	writeHeader(t, &header, head)
	zeros := zstandard(t, make([]byte, 16<<20))
	bomb := zstandard(t, header.Bytes())
	for range 640 {
		bomb = append(bomb, zeros...)
	}
	p := archive.NewDestination(t)
	var err error
	allocated := testkit.Allocated(func() { err = p.Unpack(t, bomb, archive.Options{}) })
	if err == nil || !strings.HasPrefix(err.Error(), `entry "zeros": the archive has unpacked to `) || !strings.Contains(err.Error(), "more than 100 times the ") {
		t.Errorf("got error %v, want one that names entry and ratio", err)
	}
	if allocated > 64<<20 {
		t.Errorf("%d bytes were allocated, want at most 64 MiB", allocated)
	}
	info, err := os.Stat(filepath.Join(p.Inside, "zeros"))
	if err != nil || info.Size() > 200<<20 {
		t.Errorf("the file has grown to %v (error %v), want at most 200 MiB", info, err)
	}

	err = archive.NewDestination(t).Unpack(t, bomb, archive.Options{Limits: archive.Limits{Bytes: 1 << 30}})
	archive.WantError(t, err, `entry "zeros": has 10737418240 bytes, but only 1073741824 of the limit of 1073741824 for all files are left; raise the limit if you trust the archive`)
}

// TestWindowsAreBounded checks that large zstd windows and xz dictionaries are refused. They would
// allocate gigabytes before the first byte.
func TestWindowsAreBounded(t *testing.T) {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, (31 - 10) << 3, 1, 0, 0} // a 2 GiB window and an empty block
	var err error
	allocated := testkit.Allocated(func() { err = archive.NewDestination(t).Unpack(t, frame, archive.Options{}) })
	if err == nil || !strings.Contains(err.Error(), "window size exceeded") {
		t.Errorf("zstd: got error %v, want one about the window", err)
	}
	if allocated > 64<<20 {
		t.Errorf("zstd: %d bytes were allocated, want at most 64 MiB", allocated)
	}
	large := exec.Command(testkit.Python(t).Path, "-c",
		"import sys, lzma; sys.stdout.buffer.write(lzma.compress(b'x' * 2000, filters=[{'id': lzma.FILTER_LZMA2, 'preset': 0, 'dict_size': 512 << 20}]))")
	data, err := large.Output()
	if err != nil {
		t.Skipf("this machine cannot make it: %v", err)
	}
	allocated = testkit.Allocated(func() { err = archive.NewDestination(t).Unpack(t, data, archive.Options{}) })
	if err == nil || !strings.Contains(err.Error(), "dictionary size exceeds max") {
		t.Errorf("xz: got error %v, want one about the dictionary", err)
	}
	if allocated > 64<<20 {
		t.Errorf("xz: %d bytes were allocated, want at most 64 MiB", allocated)
	}
}

// TestMemoryIsCharged checks that the window of a compression and the names of directories are
// charged before they are taken, and that an archive for which there is no room is refused.
func TestMemoryIsCharged(t *testing.T) {
	const length = 80 << 20
	var head, wide bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Mode: 0o644, Size: length}); err != nil {
		t.Fatal(err)
	}
	w, err := zstd.NewWriter(&wide, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	for range length>>20 + 1 { // and the end of the archive
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	directories := make([]archive.Entry, 20_000)
	for i := range directories {
		directories[i].Header = tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("%0200d", i), Mode: 0o755}
	}
	for name, data := range map[string][]byte{"window": wide.Bytes(), "names": archive.Pack(t, directories...)} {
		account := budget.New(budget.Config{Limit: 1 << 30})
		charge := &budget.Charge{Account: account}
		limits := archive.Limits{Ratio: 1 << 40}
		var err error
		peak := testkit.PeakHeap(account.Total, func() {
			err = archive.NewDestination(t).Unpack(t, data, archive.Options{Limits: limits, Charge: charge})
		})
		if err != nil || peak.Live > peak.Charged || peak.Charged > 150<<20 {
			t.Errorf("%s: got error %v, %d bytes of live heap and %d charged", name, err, peak.Live, peak.Charged)
		}
		charge.Settle()
		charge = &budget.Charge{Account: budget.New(budget.Config{Limit: 34 << 20})}
		err = archive.NewDestination(t).Unpack(t, data, archive.Options{Limits: limits, Charge: charge})
		if err == nil || !strings.Contains(err.Error(), "bytes of memory") {
			t.Errorf("%s without room: got error %v", name, err)
		}
	}
}

// TestFullDisk unpacks to a file system of 1 MiB and expects an error with a remedy.
func TestFullDisk(t *testing.T) {
	p := archive.NewDestination(t)
	p.Root.Close()
	if err := unix.Mount("tmpfs", p.Inside, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount a file system: %v", err)
	}
	defer func() {
		if err := unix.Unmount(p.Inside, 0); err != nil {
			t.Errorf("a file is still open in it: %v", err)
		}
	}()
	var err error
	if p.Root, err = os.OpenRoot(p.Inside); err != nil {
		t.Fatal(err)
	}
	defer p.Root.Close()
	data := archive.Pack(t, archive.Regular("a", noise(900_000)), archive.Regular("lib/b", noise(900_000)), archive.Regular("c", noise(900_000)))
	err = archive.Unpack(t.Context(), bytes.NewReader(data), p.Root, archive.Options{})
	const want = `archive_write_data_block() failed with error code = -25, error message is content is not written; free space in the file system, or name a directory in another one: no space left on device`
	if !errors.Is(err, unix.ENOSPC) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant an entry and %s", err, want)
	}
}

// TestFilesAboveTheLimitOfTheProcess checks the error if the kernel refuses content in the middle
// of a file. It runs in a child process because the limit applies to the whole process.
func TestFilesAboveTheLimitOfTheProcess(t *testing.T) {
	if inside := os.Getenv("NEREID_TEST_FSIZE"); inside != "" {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 10_000, Max: 10_000}); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(inside)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		err = archive.Unpack(t.Context(), bytes.NewReader(solid(t)), root, archive.Options{})
		archive.WantError(t, err, `entry "bin/python": archive_write_data_block() failed with error code = -25, error message is content is not written; the file is larger than the process or the file system allows: file too large`)
		return
	}
	again := exec.Command(os.Args[0], "-test.run", "^TestFilesAboveTheLimitOfTheProcess$")
	again.Env = append(os.Environ(), "NEREID_TEST_FSIZE="+t.TempDir())
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLargeFilesAreWhole checks the content of a large file, which several writers write
// concurrently.
func TestLargeFilesAreWhole(t *testing.T) {
	content := noise(9_000_001)
	p := archive.NewDestination(t)
	if err := p.Unpack(t, archive.Pack(t, archive.Regular("s", "x"), archive.Regular("large", content), archive.Regular("t", "y")), archive.Options{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(p.Inside, "large"))
	if err != nil || string(got) != content {
		t.Errorf("got %d bytes and error %v, want the %d of the archive", len(got), err, len(content))
	}
}

// writeHeader writes only an entry's header.
func writeHeader(t testing.TB, out io.Writer, e archive.Entry) {
	t.Helper()
	w := tar.NewWriter(out)
	if err := w.WriteHeader(&e.Header); err != nil {
		t.Fatal(err)
	}
}
