package clientshm

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// region is a range of a client's file, or of an allocation on a device. It does not change but
// for its references.
type region struct {
	registry *Registry
	status   Status

	// Of a file.
	fd      int
	mapping []byte      // of the range; its bytes may vanish
	shared  *shm.Shared // what stubs may map of it; nil: nothing

	// On a device; nil of a file.
	devices    Devices
	allocation *foreign.Device // with a reference of the region's

	// refs counts the name, while there is one, and the slices that are held.
	refs atomic.Int64
}

// release gives a reference up. The last one unmaps the region and closes its file.
func (g *region) release() {
	switch n := g.refs.Add(-1); {
	case n > 0:
	case n == 0:
		if g.allocation != nil {
			g.allocation.Release() // which has it closed, here and in stubs
			return
		}
		if g.shared != nil {
			g.shared.End() // stubs unmap it, who have a descriptor of their own
		}
		_ = unix.Munmap(g.mapping)
		_ = unix.Close(g.fd)
	default:
		panic("regions: a region was released more often than retained")
	}
}

// Slice is a range of a region that a request uses. It implements infer.Foreign, and what stubs need
// that take it where it lies: frames.Shared and cudaipc.Client.
type Slice struct {
	region       *region
	offset, size int64 // bytes, from the beginning of the region
}

// Retain adds a reference to the region.
func (s *Slice) Retain() { s.region.refs.Add(1) }

// Release gives a reference to the region up.
func (s *Slice) Release() { s.region.release() }

// Size returns the bytes of the range.
func (s *Slice) Size() int64 { return s.size }

// Shared returns what stubs may map of the region, and where in it the slice begins; nil if
// it is no file, or not of our user alone.
func (s *Slice) Shared() (region *shm.Shared, offset int64) { return s.region.shared, s.offset }

// inlineBytes is the longest copy that lies on the Go heap where there is an allocator.
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

// read fills dst, which has the size of the slice. The kernel copies: behind the end of a
// file that its client has truncated it finds nothing, and nothing faults.
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

// Truncated says that the client has taken bytes away.
func (s *Slice) Truncated() error {
	return infer.Errorf(infer.InvalidArg, "shared memory region '%s' has been truncated by its owner", s.region.status.Name)
}

// Write puts the bytes of an output at the beginning of the range and leaves its rest alone. A copy to a
// device that waits for others ends with ctx.
//
// Ownership: the bytes are the client's, who may read them while they are written, and may
// take them away: then the store faults, and the guard makes an error of it. data stays valid
// in the meantime, since its caller holds it.
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

// charged is what a copy on the heap has taken of the account.
type charged struct {
	account *budget.Account
	size    int64
	refs    atomic.Int32
}

// onHeap returns n bytes of the heap, charged until the owner, nil if there is no account, is
// released.
func onHeap(account *budget.Account, n int64) ([]byte, infer.Memory, error) {
	if account == nil {
		return make([]byte, n), nil, nil
	}
	if err := account.Take(budget.Bodies, n); err != nil {
		return nil, nil, err
	}
	c := &charged{account: account, size: n}
	c.refs.Store(1)
	return make([]byte, n), c, nil
}

// Retain implements infer.Memory.
func (c *charged) Retain() { c.refs.Add(1) }

// Release implements infer.Memory.
func (c *charged) Release() {
	if c.refs.Add(-1) == 0 {
		c.account.Give(budget.Bodies, c.size)
	}
}
