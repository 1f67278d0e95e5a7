package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// entry is an entry of an archive, by default a file.
type entry struct {
	name, content string
	kind          byte // as in package tar; 0: a file
	target        string
}

// smallEnvironment returns the entries of an environment with the tests' Python and a file "marker"
// with the given content.
func smallEnvironment(t *testing.T, marker string) []entry {
	t.Helper()
	return []entry{
		{name: "bin/", kind: tar.TypeDir},
		{name: "bin/python", content: "#!/bin/sh\nexec '" + testkit.Python(t).Path + "' \"$@\"\n"},
		{name: "bin/python3", kind: tar.TypeSymlink, target: "python"},
		{name: "bin/activate", content: "exit 1 # it is not executed\n"},
		{name: "marker", content: marker},
	}
}

// pack writes a tar.gz and renames it to path, so that it appears atomically.
func pack(t *testing.T, path string, entries []entry) {
	t.Helper()
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: 0o755, Typeflag: e.kind, Linkname: e.target, Size: int64(len(e.content))}
		if e.kind == 0 {
			head.Typeflag = tar.TypeReg
		}
		if err := archive.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	place(t, path, b.Bytes())
}

// place replaces a file atomically.
func place(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// largeFiles is the number of files in a largeEnvironment.
const largeFiles = 4000

// largeEnvironment returns the entries of an environment that takes a while to unpack: 130 MB in
// largeFiles files.
func largeEnvironment(t *testing.T) []entry {
	t.Helper()
	entries := smallEnvironment(t, "one")
	noise := make([]byte, 64<<10)
	chance := rand.NewChaCha8([32]byte{})
	for i := range largeFiles {
		_, _ = chance.Read(noise)
		entries = append(entries, entry{name: fmt.Sprintf("share/%d", i), content: string(noise[:1+i*16%len(noise)])})
	}
	return entries
}

// packHollow writes a tar with additional files of zeros, which are holes in the archive and need
// no disk space.
func packHollow(t *testing.T, path string, entries []entry, pieces int, piece int64) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	end := int64(0)
	add := func(head *tar.Header, content string) {
		t.Helper()
		var b bytes.Buffer
		archive := tar.NewWriter(&b)
		if err := archive.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		b.WriteString(content)
		if _, err := file.WriteAt(b.Bytes(), end); err != nil {
			t.Fatal(err)
		}
		const block = 512
		end += block + (head.Size+block-1)/block*block
	}
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Mode: 0o755, Typeflag: e.kind, Linkname: e.target, Size: int64(len(e.content))}
		if e.kind == 0 {
			head.Typeflag = tar.TypeReg
		}
		add(head, e.content)
	}
	for i := range pieces {
		add(&tar.Header{Name: fmt.Sprint("share/", i), Mode: 0o644, Typeflag: tar.TypeReg, Size: piece}, "")
	}
	if err := file.Truncate(end + 1024); err != nil { // a tar ends with two blocks of zeros
		t.Fatal(err)
	}
}

// TestAPackedEnvironmentWithoutAPython packs an environment without a Python. Its model must run
// with the server's Python and the environment's variables.
func TestAPackedEnvironmentWithoutAPython(t *testing.T) {
	root := writeFiles(t, map[string]string{
		"bare/config.pbtxt": inEnvironment("$$TRITON_MODEL_DIRECTORY/env.tar.gz"), "bare/1/model.py": tellingModel,
		"plain/config.pbtxt": `backend: "python"`, "plain/1/model.py": tellingModel,
	})
	pack(t, root+"/bare/env.tar.gz", []entry{{name: "bin/activate", content: "exit 1\n"}, {name: "marker", content: "bare"}})
	s := start(t, testkit.Python(t).Path, root, cacheFlag(filepath.Join(t.TempDir(), "environments")))
	if got := s.marker("bare"); got != "bare" {
		t.Errorf("VIRTUAL_ENV leads to the marker %q, want that of the archive", got)
	}
	bare, plain := s.mustAsk("bare"), s.mustAsk("plain")
	if bare.Prefix != plain.Prefix || !strings.HasPrefix(bare.Environment["PATH"], bare.Environment["VIRTUAL_ENV"]+"/bin:") {
		t.Errorf("the model runs in %s with the PATH %s, want %s and the environment's bin first", bare.Prefix, bare.Environment["PATH"], plain.Prefix)
	}
	if !s.prints("has bin/activate but no bin/python") {
		t.Error("the log does not warn of it")
	}
}
