package archive

import (
	"bufio"
	"strings"
	"testing"
)

// TestWindowsAreReadFromTheHead checks the windows of heads as the commands write them. An unknown
// head has the largest one.
func TestWindowsAreReadFromTheHead(t *testing.T) {
	const (
		xz6   = "\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3"
		xz9   = "\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x1c\x00\x00\x00\x10\xcf\x58\xcc"
		x86   = "\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x01\x04\x00\x21\x01\x16\x00\x00\x00\x00\x00"
		long  = "\x28\xb5\x2f\xfd\x04\x80" // a window of 64 MiB
		pzstd = "\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
	)
	for _, test := range []struct {
		name, head string
		window     func(*bufio.Reader) int
		want       int
	}{
		{"xz -6", xz6, windowOfXZ, 8 << 20},
		{"xz -9", xz9, windowOfXZ, 64 << 20},
		{"xz --x86", x86, windowOfXZ, 8 << 20},
		{"xz, 4 GiB", strings.Replace(xz6, "\x16", "\x28", 1), windowOfXZ, xzWindow},
		{"xz, another filter", strings.Replace(xz6, "\x21\x01", "\x20\x01", 1), windowOfXZ, xzWindow},
		{"xz, cut off", xz6[:14], windowOfXZ, xzWindow},
		{"zstd", "\x28\xb5\x2f\xfd\x04\x58", windowOfZstd, zstdLeast},
		{"zstd --long", long, windowOfZstd, 64 << 20},
		{"pzstd", pzstd + long, windowOfZstd, 64 << 20},
		{"a skippable frame alone", pzstd, windowOfZstd, zstdWindow},
		{"zstd, cut off", long[:4], windowOfZstd, zstdWindow},
	} {
		head := test.head + strings.Repeat("\x00", blockSize)
		if strings.Contains(test.name, "cut off") || strings.Contains(test.name, "alone") {
			head = test.head
		}
		if got := test.window(bufio.NewReader(strings.NewReader(head))); got != test.want {
			t.Errorf("%s: got %d bytes, want %d", test.name, got, test.want)
		}
	}
}
