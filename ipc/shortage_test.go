package ipc_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
)

// TestFailedNewClosesItsDescriptors makes each call that creates a descriptor in New fail
// in turn. New returns an error and closes the descriptors it has created.
func TestFailedNewClosesItsDescriptors(t *testing.T) {
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
	open := testkit.Descriptors(t)
	refusals := 0
	for limit := uint64(0); ; limit++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		c, err := ipc.New(ipc.Config{Life: 1})
		restore()
		if err == nil {
			c.Close()
			break
		}
		refusals++
		if !errors.Is(err, unix.EMFILE) || c != nil {
			t.Fatalf("New with %d descriptors: got %v and error %v, want EMFILE", limit, c, err)
		}
		if n := testkit.Descriptors(t); n != open {
			t.Fatalf("New with %d descriptors: got %d open after its error, want %d", limit, n, open)
		}
	}
	// Two files, six pipe ends, two descriptors for the stub.
	if refusals < 9 {
		t.Errorf("got %d refusals, want one for each descriptor at least", refusals)
	}
	if n := testkit.Descriptors(t); n != open {
		t.Errorf("got %d open files in the end, want %d", n, open)
	}
}
