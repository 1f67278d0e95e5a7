package shm

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// attached makes a region of four pages and attaches to it once more.
func attached(t *testing.T, access Access) (maker, user *Region) {
	t.Helper()
	maker, err := NewRegion(Memfd{}, 4*PageSize, ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(maker.Release)
	if err := maker.Reserve(0, maker.Size()); err != nil {
		t.Fatal(err)
	}
	file, err := maker.OpenReadOnly()
	if access == ReadWrite {
		var fd int
		fd, err = unix.FcntlInt(maker.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		file = os.NewFile(uintptr(fd), "again")
	}
	if err != nil {
		t.Fatal(err)
	}
	if user, err = Attach(file, access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Release)
	return maker, user
}

// TestPrivatePagesAreFoundAndForgotten writes into a private region: the maker does not see it, Pages
// do, and Forget takes it back.
func TestPrivatePagesAreFoundAndForgotten(t *testing.T) {
	maker, user := attached(t, Private)
	pages, err := OpenPages()
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	theirs, _ := maker.Bytes(0, 4*PageSize)
	ours, _ := user.Bytes(0, 4*PageSize)
	copy(theirs, bytes.Repeat([]byte{7}, 4*PageSize))
	if pages.Written(user, 0, 4*PageSize) {
		t.Error("a page counts as written, and none was touched")
	}
	if !bytes.Equal(ours, theirs) {
		t.Error("the private region does not show the file")
	}
	if pages.Written(user, 0, 4*PageSize) {
		t.Error("a page counts as written, and they were only read")
	}
	before := Faults()
	ours[PageSize+5] = 9
	if Faults() == before {
		t.Error("the first write of a page made no fault")
	}
	if theirs[PageSize+5] != 7 {
		t.Errorf("the maker sees %d, want 7", theirs[PageSize+5])
	}
	for _, test := range []struct {
		offset, n uint64
		want      bool
	}{{0, PageSize, false}, {0, PageSize + 1, true}, {PageSize, 1, true}, {2*PageSize - 1, 2, true}, {2 * PageSize, 2 * PageSize, false}, {PageSize, 0, false}} {
		if got := pages.Written(user, test.offset, test.n); got != test.want {
			t.Errorf("Written(%d, %d): got %v, want %v", test.offset, test.n, got, test.want)
		}
	}
	if err := user.Forget(1, 2*PageSize-2); err != nil || ours[PageSize+5] != 9 {
		t.Errorf("Forget of no whole page: got error %v and byte %d", err, ours[PageSize+5])
	}
	if err := user.Forget(PageSize, PageSize); err != nil {
		t.Fatal(err)
	}
	if ours[PageSize+5] != 7 || pages.Written(user, 0, 4*PageSize) {
		t.Errorf("after Forget: got %d, want the file's 7", ours[PageSize+5])
	}
}

func TestAttachedRegionIsTheSameMemory(t *testing.T) {
	maker, user := attached(t, ReadWrite)
	user.Uint64(8).Store(5)
	if got := maker.Uint64(8).Load(); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
	data, _ := user.Bytes(PageSize, 100)
	if at, ok := user.Locate(data[10:20]); !ok || at != PageSize+10 {
		t.Errorf("Locate: got %d, %v", at, ok)
	}
	theirs, _ := maker.Bytes(PageSize, 100)
	for _, other := range [][]byte{nil, {}, make([]byte, 8), theirs} {
		if _, ok := user.Locate(other); ok {
			t.Errorf("Locate takes %d bytes that lie elsewhere", len(other))
		}
	}
}
