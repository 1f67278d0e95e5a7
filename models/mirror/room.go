package mirror

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/objects"
)

// room is what a copy still has to write of what it was granted. Mirror.reserved is the sum of all: copies that are made at the
// same time do not count on the same free space.
type room struct {
	mirror *Mirror
	left   int64 // bytes, under Mirror.space
}

// reserve grants the room for objects that are to be fetched, and fails if the disk has less. The caller gives it back.
func (m *Mirror) reserve(directory string, model *Model, list []objects.Object) (*room, error) {
	var bytes int64
	for _, o := range list {
		if o.Size > math.MaxInt64-bytes {
			return nil, infer.Errorf(infer.Internal, "model '%s' of %s needs more than %d bytes, which no directory has: look at the sizes that the store lists",
				model.Name, m.config.Location, int64(math.MaxInt64))
		}
		bytes += o.Size
	}
	r := &room{mirror: m}
	var disk unix.Statfs_t
	// Locked before the look at the disk: what another copy writes meanwhile is used and reserved at once for a moment, but never
	// neither.
	m.space.Lock()
	defer m.space.Unlock()
	if unix.Statfs(directory, &disk) != nil {
		return r, nil
	}
	free := disk.Bavail * uint64(disk.Bsize)
	free -= min(free, uint64(m.reserved))
	if bytes > 0 && uint64(bytes) >= free {
		return nil, infer.Errorf(infer.Internal, "model '%s' of %s needs %d bytes in %s, which has %d free: make room, or have %s name a directory with more",
			model.Name, m.config.Location, bytes, m.config.Place.Base(), free, m.config.Variable)
	}
	r.left = bytes
	m.reserved += bytes // which is less than what is free, and so the sum does not overflow
	return r, nil
}

// used gives back what has been written: the disk counts it from now on.
func (r *room) used(bytes int64) {
	r.mirror.space.Lock()
	defer r.mirror.space.Unlock()
	bytes = min(bytes, r.left)
	r.left -= bytes
	r.mirror.reserved -= bytes
}

// giveBack gives the rest back.
func (r *room) giveBack() { r.used(math.MaxInt64) }
