package mirror

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

// room is the part of a copy's granted disk space that is not written yet. fetcher.reserved is the
// sum of all, so that concurrent copies do not count on the same free space.
type room struct {
	fetcher *fetcher
	left    int64 // bytes, under fetcher.space
}

// reserve grants space for objects that are to be fetched. It fails if the disk has less. The
// caller releases the rest.
func (f *fetcher) reserve(directory, what string, list []objectstore.Object) (*room, error) {
	var bytes int64
	for _, o := range list {
		if o.Size > math.MaxInt64-bytes {
			return nil, infer.Errorf(infer.Internal, "%s needs more than %d bytes, which no directory has: look at the sizes that the store lists", what, int64(math.MaxInt64))
		}
		bytes += o.Size
	}
	r := &room{fetcher: f}
	var disk unix.Statfs_t
	// Locked before the disk is read: bytes that another copy writes meanwhile may briefly count
	// twice, but never not at all.
	f.space.Lock()
	defer f.space.Unlock()
	if unix.Statfs(directory, &disk) != nil {
		return r, nil
	}
	free := disk.Bavail * uint64(disk.Bsize)
	free -= min(free, uint64(f.reserved))
	if bytes > 0 && uint64(bytes) >= free {
		return nil, uncopied("%s needs %d bytes in %s, which has %d free: make room, or have %s name a directory with more",
			what, bytes, f.config.Workspace.Base(), free, f.config.Variable)
	}
	r.left = bytes
	f.reserved += bytes // less than the free space, so the sum does not overflow
	return r, nil
}

// used returns written bytes to the reserve: the disk counts them from now on.
func (r *room) used(bytes int64) {
	r.fetcher.space.Lock()
	defer r.fetcher.space.Unlock()
	bytes = min(bytes, r.left)
	r.left -= bytes
	r.fetcher.reserved -= bytes
}

// giveBack releases the rest.
func (r *room) giveBack() { r.used(math.MaxInt64) }
