package shm_test

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/shm"
)

// attached returns a region of four pages and a second mapping of it.
func attached(t *testing.T, access shm.Access) (maker, user *shm.Region) {
	t.Helper()
	maker, err := shm.NewRegion(shm.Memfd{}, 4*shm.PageSize, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(maker.Release)
	if err := maker.Reserve(0, maker.Size()); err != nil {
		t.Fatal(err)
	}
	file, err := maker.OpenReadOnly()
	if access == shm.ReadWrite {
		var fd int
		fd, err = unix.FcntlInt(maker.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		file = os.NewFile(uintptr(fd), "again")
	}
	if err != nil {
		t.Fatal(err)
	}
	if user, err = shm.Attach(file, access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Release)
	return maker, user
}

// TestPrivatePagesAreFoundAndForgotten writes into a private region. The maker does not see the
// write, Pages reports it, and Forget discards it.
func TestPrivatePagesAreFoundAndForgotten(t *testing.T) {
	maker, user := attached(t, shm.Private)
	pages, err := shm.OpenPages()
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	theirs, _ := maker.Bytes(0, 4*shm.PageSize)
	ours, _ := user.Bytes(0, 4*shm.PageSize)
	copy(theirs, bytes.Repeat([]byte{7}, 4*shm.PageSize))
	if pages.Written(user, 0, 4*shm.PageSize) {
		t.Error("a page counts as written, and none was touched")
	}
	if !bytes.Equal(ours, theirs) {
		t.Error("the private region does not show the file")
	}
	if pages.Written(user, 0, 4*shm.PageSize) {
		t.Error("a page counts as written, and they were only read")
	}
	before := shm.Faults()
	ours[shm.PageSize+5] = 9
	if shm.Faults() == before {
		t.Error("the first write of a page made no fault")
	}
	if theirs[shm.PageSize+5] != 7 {
		t.Errorf("the maker sees %d, want 7", theirs[shm.PageSize+5])
	}
	for _, test := range []struct {
		offset, n uint64
		want      bool
	}{{0, shm.PageSize, false}, {0, shm.PageSize + 1, true}, {shm.PageSize, 1, true}, {2*shm.PageSize - 1, 2, true}, {2 * shm.PageSize, 2 * shm.PageSize, false}, {shm.PageSize, 0, false}} {
		if got := pages.Written(user, test.offset, test.n); got != test.want {
			t.Errorf("Written(%d, %d): got %v, want %v", test.offset, test.n, got, test.want)
		}
	}
	if err := user.Forget(1, 2*shm.PageSize-2); err != nil || ours[shm.PageSize+5] != 9 {
		t.Errorf("Forget of no whole page: got error %v and byte %d", err, ours[shm.PageSize+5])
	}
	if err := user.Forget(shm.PageSize, shm.PageSize); err != nil {
		t.Fatal(err)
	}
	if ours[shm.PageSize+5] != 7 || pages.Written(user, 0, 4*shm.PageSize) {
		t.Errorf("after Forget: got %d, want the file's 7", ours[shm.PageSize+5])
	}
}

func TestAttachedRegionIsTheSameMemory(t *testing.T) {
	maker, user := attached(t, shm.ReadWrite)
	user.Uint64(8).Store(5)
	if got := maker.Uint64(8).Load(); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
	data, _ := user.Bytes(shm.PageSize, 100)
	if at, ok := user.Locate(data[10:20]); !ok || at != shm.PageSize+10 {
		t.Errorf("Locate: got %d, %v", at, ok)
	}
	theirs, _ := maker.Bytes(shm.PageSize, 100)
	for _, other := range [][]byte{nil, {}, make([]byte, 8), theirs} {
		if _, ok := user.Locate(other); ok {
			t.Errorf("Locate takes %d bytes that lie elsewhere", len(other))
		}
	}
}
