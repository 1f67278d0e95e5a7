package mirror

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objectstore"
)

// room is what a copy still has to write of what it was granted. fetcher.reserved is the sum of all: copies that are made at the
// same time do not count on the same free space.
type room struct {
	fetcher *fetcher
	left    int64 // bytes, under fetcher.space
}

// reserve grants the room for objects of what is to be fetched, and fails if the disk has less. The caller gives it back.
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
	// Locked before the look at the disk: what another copy writes meanwhile is used and reserved at once for a moment, but never
	// neither.
	f.space.Lock()
	defer f.space.Unlock()
	if unix.Statfs(directory, &disk) != nil {
		return r, nil
	}
	free := disk.Bavail * uint64(disk.Bsize)
	free -= min(free, uint64(f.reserved))
	if bytes > 0 && uint64(bytes) >= free {
		return nil, uncopied("%s needs %d bytes in %s, which has %d free: make room, or have %s name a directory with more",
			what, bytes, f.config.Place.Base(), free, f.config.Variable)
	}
	r.left = bytes
	f.reserved += bytes // which is less than what is free, and so the sum does not overflow
	return r, nil
}

// used gives back what has been written: the disk counts it from now on.
func (r *room) used(bytes int64) {
	r.fetcher.space.Lock()
	defer r.fetcher.space.Unlock()
	bytes = min(bytes, r.left)
	r.left -= bytes
	r.fetcher.reserved -= bytes
}

// giveBack gives the rest back.
func (r *room) giveBack() { r.used(math.MaxInt64) }
