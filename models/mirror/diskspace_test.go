package mirror

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

// TestModelThatDoesNotFitIsRefused checks that a model that does not fit is rejected before
// anything is fetched.
func TestModelThatDoesNotFitIsRefused(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	huge := *w.mirror.Model("a")
	huge.Objects = slices.Clone(huge.Objects)
	huge.Objects[0].Size = 1 << 60
	_, err := w.mirror.Copy(t.Context(), &huge, func(string) bool { return true })
	if err == nil || !strings.Contains(infer.AsError(err).Detailed().Message, "model 'a' of s3://bucket/models needs 1152921504606846976 bytes in "+w.place+", which has ") ||
		!strings.HasSuffix(infer.AsError(err).Detailed().Message, " free: make room, or have MOUNT name a directory with more") {
		t.Errorf("got error %v", err)
	}
	if n := w.store.Opened("a/1/x"); n != 0 {
		t.Errorf("it was read %d times, want 0", n)
	}
}

// TestSizesThatOverflowAreRefused checks that sizes whose sum overflows are rejected.
func TestSizesThatOverflowAreRefused(t *testing.T) {
	w := newWorld(t, nil, "a/1/x", "a/1/y", "a/1/z")
	huge := *w.mirror.Model("a")
	huge.Objects = slices.Clone(huge.Objects)
	for i := range huge.Objects {
		huge.Objects[i].Size = 1 << 62
	}
	_, err := w.mirror.Copy(t.Context(), &huge, func(string) bool { return true })
	if err == nil || !strings.HasPrefix(err.Error(), "model 'a' of s3://bucket/models needs more than 9223372036854775807 bytes") {
		t.Errorf("got error %v", err)
	}
}

// TestCopiesShareTheFreeSpace checks that concurrent copies do not claim the same free space, and
// that written and unused bytes are released.
func TestCopiesShareTheFreeSpace(t *testing.T) {
	w := newWorld(t, nil, "a/1/x")
	var disk unix.Statfs_t
	if err := unix.Statfs(w.place, &disk); err != nil {
		t.Fatal(err)
	}
	most := []objectstore.Object{{Key: "1/x", Size: int64(disk.Bavail) * disk.Bsize / 4 * 3}}
	first, err := w.mirror.claim(w.place, "a model", most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.mirror.claim(w.place, "a model", most); err == nil || !strings.Contains(infer.AsError(err).Detailed().Message, "make room, or have MOUNT name a directory with more") {
		t.Errorf("a second copy: got error %v", err)
	}
	first.used(most[0].Size) // a real write would reduce the free space instead
	second, err := w.mirror.claim(w.place, "a model", most)
	if err != nil {
		t.Errorf("after the first has written: got error %v", err)
	}
	second.giveBack()
	first.giveBack()
	w.mustCopy("a").Drop()
	if w.mirror.claimed != 0 {
		t.Errorf("%d bytes are claimed after all copies", w.mirror.claimed)
	}
}
