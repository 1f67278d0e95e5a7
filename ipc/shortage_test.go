package ipc

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNewWithoutDescriptorsClosesWhatItMade makes each call of New that creates a descriptor fail,
// one after another: each is an error, and the earlier descriptors are closed.
func TestNewWithoutDescriptorsClosesWhatItMade(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	open := countFiles(t)
	refusals := 0
	for limit := uint64(0); ; limit++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Life: 1})
		restore()
		if err == nil {
			c.Close()
			break
		}
		refusals++
		if !errors.Is(err, unix.EMFILE) || c != nil {
			t.Fatalf("New with %d descriptors: got %v and error %v, want EMFILE", limit, c, err)
		}
		if n := countFiles(t); n != open {
			t.Fatalf("New with %d descriptors: got %d open after its error, want %d", limit, n, open)
		}
	}
	// Two files, six ends of pipes, two descriptors for the stub.
	if refusals < 9 {
		t.Errorf("got %d refusals, want one for each descriptor at least", refusals)
	}
	if n := countFiles(t); n != open {
		t.Errorf("got %d open files in the end, want %d", n, open)
	}
}

func countFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
