package mirror

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

// diskSpace is the part of a copy's claimed disk space that is not written yet. fetcher.claimed
// is the sum of all, so that concurrent copies do not count on the same free space.
type diskSpace struct {
	fetcher *fetcher
	left    int64 // bytes, under fetcher.space
}

// claim reserves disk space for objects before they are fetched. It fails if the disk has less
// space. The caller releases unused space.
func (f *fetcher) claim(directory, what string, list []objectstore.Object) (*diskSpace, error) {
	var bytes int64
	for _, o := range list {
		if o.Size > math.MaxInt64-bytes {
			return nil, infer.Errorf(infer.Internal, "%s needs more than %d bytes, which no directory has: look at the sizes that the store lists", what, int64(math.MaxInt64))
		}
		bytes += o.Size
	}
	r := &diskSpace{fetcher: f}
	var disk unix.Statfs_t
	// Locked before the disk is read: bytes that another copy writes meanwhile may briefly count
	// twice, but never not at all.
	f.space.Lock()
	defer f.space.Unlock()
	if unix.Statfs(directory, &disk) != nil {
		return r, nil
	}
	free := disk.Bavail * uint64(disk.Bsize)
	free -= min(free, uint64(f.claimed))
	if bytes > 0 && uint64(bytes) >= free {
		return nil, uncopied("%s needs %d bytes in %s, which has %d free: make room, or have %s name a directory with more",
			what, bytes, f.config.Workspace.Base(), free, f.config.Variable)
	}
	r.left = bytes
	f.claimed += bytes // less than the free space, so the sum does not overflow
	return r, nil
}

// used subtracts written bytes from the claim: the disk counts them from now on.
func (r *diskSpace) used(bytes int64) {
	r.fetcher.space.Lock()
	defer r.fetcher.space.Unlock()
	bytes = min(bytes, r.left)
	r.left -= bytes
	r.fetcher.claimed -= bytes
}

// giveBack releases the rest.
func (r *diskSpace) giveBack() { r.used(math.MaxInt64) }
