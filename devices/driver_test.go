package devices

import (
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestDriverIsFoundByItsFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		testkit.WriteFiles(t, dir, map[string]string{name: content})
		return filepath.Join(dir, name)
	}
	none := filepath.Join(dir, "none")
	with := filepath.Dir(file("with/libcuda.so.1", ""))
	full := file("full.cache", "glibc-ld.so.cache1.1\x00libcuda.so.1\x00/usr/lib/libcuda.so.1\x00")
	other := file("other.cache", "glibc-ld.so.cache1.1\x00libcudart.so.1\x00/opt/not-libcuda.so.1\x00libcuda.so.11\x00")
	device := file("nvidiactl", "")
	for _, c := range []struct {
		name          string
		folders       []string
		cache, device string
		want          bool
	}{
		{"nothing", []string{none, dir}, none, none, false},
		{"a folder", []string{none, with}, none, none, true},
		{"the cache", nil, full, none, true},
		{"a cache with similar names", nil, other, none, false},
		{"the device file", nil, other, device, true},
	} {
		if got := found(c.folders, c.cache, c.device); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if !Found(func(name string) string { return map[string]string{"LD_LIBRARY_PATH": "/none:" + with}[name] }) {
		t.Error("the library in LD_LIBRARY_PATH is not found")
	}
}
