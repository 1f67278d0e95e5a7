package clientshm

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// region is a range of a client's file, or of an allocation on a device. Only its references
// change.
type region struct {
	foreign.References // the name, while there is one, and the slices that are held

	registry *Registry
	status   Status

	// Of a file.
	fd      int
	mapping []byte      // of the range; the client can truncate its bytes
	shared  *shm.Shared // for stubs that may map the region; nil: none may

	// On a device; nil for a file.
	devices    Devices
	allocation *foreign.Device // with a reference of the region's own
}

// release drops a reference. The last one unmaps the region and closes its file.
func (g *region) release() {
	if !g.Drop() {
		return
	}
	if g.allocation != nil {
		g.allocation.Release() // closes it, here and in stubs
		return
	}
	if g.shared != nil {
		g.shared.End() // makes stubs unmap it, which have their own descriptor
	}
	_ = unix.Munmap(g.mapping)
	_ = unix.Close(g.fd)
}

// Slice is a range of a region that a request uses. It implements infer.Foreign, and frames.Shared
// and cudaipc.Client for stubs that read it in place.
type Slice struct {
	region       *region
	offset, size int64 // bytes, from the start of the region
}

// Retain adds a reference to the region.
func (s *Slice) Retain() { s.region.Retain() }

// Release drops a reference to the region.
func (s *Slice) Release() { s.region.release() }

// Size returns the bytes of the range.
func (s *Slice) Size() int64 { return s.size }

// Shared returns the region for stubs that map it and the slice's offset there, or nil if the
// region is not a file of the server's user alone.
func (s *Slice) Shared() (region *shm.Shared, offset int64) { return s.region.shared, s.offset }

// inlineBytes is the longest copy on the Go heap if there is an allocator.
const inlineBytes = 4 << 10

// Copy implements infer.Foreign.
func (s *Slice) Copy(ctx context.Context) (data []byte, owner infer.Memory, err error) {
	if s.region.allocation != nil {
		return s.copyDevice(ctx)
	}
	config := &s.region.registry.config
	if s.size > inlineBytes && config.Allocate != nil {
		data, owner, err = config.Allocate(int(s.size))
	} else {
		data, owner, err = onHeap(config.Account, s.size)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := s.read(data); err != nil {
		if owner != nil {
			owner.Release()
		}
		return nil, nil, err
	}
	return data, owner, nil
}

// read fills dst, which has the size of the slice. The kernel copies: beyond the end of a file that
// its client has truncated it reads nothing, and nothing faults.
func (s *Slice) read(dst []byte) error {
	for at := int64(s.region.status.Offset) + s.offset; len(dst) > 0; {
		n, err := unix.Pread(s.region.fd, dst, at)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return infer.Errorf(infer.Internal, "Unable to read shared memory region '%s': %s", s.region.status.Name, reason(err))
		case n == 0:
			return s.Truncated()
		default:
			dst, at = dst[n:], at+int64(n)
		}
	}
	return nil
}

// Truncated returns the error of a region that its client has truncated.
func (s *Slice) Truncated() error {
	return infer.Errorf(infer.InvalidArg, "shared memory region '%s' has been truncated by its owner", s.region.status.Name)
}

// Write copies an output to the start of the range and leaves the rest alone. A copy to a device
// that waits for others ends with ctx.
//
// Ownership: the bytes are the client's, who may read them while they are written, and may truncate
// the file. Then the store faults, and the guard returns an error. data stays valid meanwhile,
// since the caller holds it.
func (s *Slice) Write(ctx context.Context, output string, data []byte) error {
	if n := int64(len(data)); n > s.size {
		return infer.Errorf(infer.Internal,
			"shared memory size specified with the request for output '%s' (%d bytes) should be at least %d bytes to hold the results", output, s.size, n)
	}
	if s.region.allocation != nil {
		return s.region.devices.Write(ctx, s.region.allocation, uint64(s.offset), data)
	}
	if shm.Guard(func() { copy(s.region.mapping[s.offset:s.offset+s.size], data) }) != nil {
		return s.Truncated()
	}
	return nil
}

// charged is the charge of a copy on the heap.
type charged struct {
	foreign.References

	account *budget.Account
	size    int64
}

// onHeap returns n bytes of the heap, which are charged until the owner is released. The owner is
// nil without an account.
func onHeap(account *budget.Account, n int64) ([]byte, infer.Memory, error) {
	if account == nil {
		return make([]byte, n), nil, nil // bound: the request; only tests have no account
	}
	if err := account.Take(budget.Bodies, n); err != nil {
		return nil, nil, err
	}
	return make([]byte, n), &charged{account: account, size: n}, nil // bound: charged
}

// Release implements infer.Memory.
func (c *charged) Release() {
	if c.Drop() {
		c.account.Give(budget.Bodies, c.size)
	}
}
