package server

import (
	"errors"
	"io/fs"
	"math"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	c := charge{budget: b}
	if err := c.take(60); err != nil {
		t.Fatal(err)
	}
	err := b.Take(41)
	if e := infer.AsError(err); e == nil || e.Code != infer.Unavailable {
		t.Errorf("41 more: got %v, want Unavailable", err)
	}
	if err := b.Take(math.MaxInt64); err == nil {
		t.Error("the largest number fits")
	}
	if err := c.take(40); err != nil || b.Used() != 100 {
		t.Errorf("40 more: got %v, %d used", err, b.Used())
	}
	c.settle()
	c.settle()
	if b.Used() != 0 {
		t.Errorf("%d bytes are used after the end, want none", b.Used())
	}
	if n := NewBudget(0).Limit(); n <= 0 || n > memoryLimit() {
		t.Errorf("default: got %d, want a part of %d", n, memoryLimit())
	}
}

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
