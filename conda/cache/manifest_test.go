package cache

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// encode makes the text of a manifest.
func (m *manifest) encode() []byte {
	var text bytes.Buffer
	to := bufio.NewWriter(&text)
	encode(to, m.files)
	encodeEnd(to, int64(len(m.files)))
	_ = to.Flush()
	return text.Bytes()
}

// TestAManifestOfManyFilesTakesLittleMemory lists more files than are held at a time, with links to
// the same file, and checks their count, their bytes and the memory. It is internal because it
// measures the memory while the manifest is written.
func TestAManifestOfManyFilesTakesLittleMemory(t *testing.T) {
	dir := t.TempDir()
	const links, long = 16 * batchFiles, 200
	for i := range 3 { // directories
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), "empty"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(dir, "0", "first")
	if err := os.WriteFile(first, []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range links {
		if err := os.Link(first, filepath.Join(dir, "1", strconv.Itoa(i)+strings.Repeat("x", long))); err != nil {
			t.Fatal(err)
		}
	}
	directories := int64(0)
	for _, name := range []string{"0", "1", "2", "0/empty", "1/empty", "2/empty"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		directories += (info.Size() + 4095) / 4096 * 4096
	}
	text := &held{before: testkit.LiveHeap()}
	files, size, err := writeManifest(t.Context(), zerolog.Nop(), dir, text)
	if err != nil || files != links+7 || size != directories+4096 {
		t.Errorf("got %d files of %d bytes (%v), want %d of %d", files, size, err, links+7, directories+4096)
	}
	if text.most > links*(long+100) {
		t.Errorf("got %d bytes of heap, want less than all names have", text.most)
	}
	if !bytes.HasSuffix(text.last, fmt.Appendf(nil, "end %d\n", links+7)) {
		t.Errorf("got the end %q", text.last[max(0, len(text.last)-40):])
	}
}

// held measures the heap while a manifest is written to it.
type held struct {
	writes       int
	before, most int64
	last         []byte
}

func (h *held) Write(text []byte) (int, error) {
	if h.writes++; h.writes%32 == 0 {
		if now := testkit.LiveHeap(); now > h.before {
			h.most = max(h.most, now-h.before)
		}
	}
	h.last = bytes.Clone(text)
	return len(text), nil
}

// FuzzManifest checks that an arbitrary manifest is refused, or is the same after encoding and
// decoding. It is internal because only a Cache writes manifests.
func FuzzManifest(f *testing.F) {
	m := &manifest{files: []file{
		{path: "bin/python", kind: 'f', mode: 0o755, size: 7, sum: 0xdeadbeef}, {path: "lib", kind: 'd', mode: 0o700},
		{path: "lib/a \"b\"\n", kind: 'l', mode: 0o777, target: "../x y"},
	}}
	f.Add(m.encode())
	f.Add([]byte("end 0\n"))
	f.Add([]byte("f 644 1 00000000 \"a\"\n"))
	f.Add([]byte("f 999 -1 zz a\nend 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeManifest(text)
		if err != nil {
			return
		}
		again, err := decodeManifest(m.encode())
		if err != nil || !slices.Equal(again.files, m.files) {
			t.Errorf("%q: got %v, %+v, want %+v", text, err, again, m.files)
		}
	})
}

// TestATruncatedManifestIsDamaged is internal because it cuts a manifest at each byte.
func TestATruncatedManifestIsDamaged(t *testing.T) {
	text := (&manifest{files: []file{{path: "a", kind: 'f'}, {path: "b", kind: 'd'}}}).encode()
	for end := range len(text) - 1 {
		if m, err := decodeManifest(text[:end]); err == nil {
			t.Errorf("%q: got %+v, want an error", text[:end], m)
		}
	}
	if _, err := decodeManifest(bytes.Replace(text, []byte("end 2"), []byte("end 1"), 1)); err == nil {
		t.Error("a wrong number of files: got no error")
	}
}
