package shm

import (
	"errors"
	"io/fs"
	"math"
	"testing"
)

func TestGroupLimit(t *testing.T) {
	files := map[string]string{
		"/sys/fs/cgroup/a/b/memory.max": "max\n",
		"/sys/fs/cgroup/a/memory.max":   "4096\n",
		"/sys/fs/cgroup/memory.max":     "8192\n",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	for membership, want := range map[string]int64{
		"0::/a/b\n": 4096, "1:cpu:/x\n0::/\n": 8192, "0::/../c\n": 8192, "1:memory:/a\n": math.MaxInt64, "": math.MaxInt64,
	} {
		if got := groupLimit(read, []byte(membership)); got != want {
			t.Errorf("%q: got %d, want %d", membership, got, want)
		}
	}
	if got := groupLimit(func(string) ([]byte, error) { return nil, errors.New("no") }, []byte("0::/a\n")); got != math.MaxInt64 {
		t.Errorf("unreadable: got %d", got)
	}
}
