package cudaipc

import (
	"context"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// Copier copies from a device into the server's memory, by a process that may use the device.
type Copier interface {
	// Copy copies n bytes at offset of an allocation. The memory is charged until it is released.
	// Errors are an *infer.Error. Waiting for its turn ends with ctx.
	Copy(ctx context.Context, from *foreign.Device, offset, n uint64) ([]byte, infer.Memory, error)
}

// Memory is the location of one tensor's bytes on a device. It is foreign: this process does not
// touch them.
type Memory struct {
	foreign.References // while there is only one, no other process reads the bytes

	allocation *foreign.Device
	maker      *Lent
	number     uint32 // the maker's number of the allocation
	offset, n  uint64
	extent     *shm.Extent // the maker's ticket
}

var _ infer.Foreign = (*Memory)(nil)

// Size implements infer.Foreign.
func (m *Memory) Size() int64 { return int64(m.n) }

// Copy implements infer.Foreign.
func (m *Memory) Copy(ctx context.Context) ([]byte, infer.Memory, error) {
	if m.maker.copier == nil {
		return nil, nil, infer.Errorf(infer.Unavailable, "the tensor is on a device that no process of the server can copy from")
	}
	return m.maker.copier.Copy(ctx, m.allocation, m.offset, m.n)
}

// Release implements infer.Memory. After the last Release the maker may reuse the bytes.
func (m *Memory) Release() {
	if !m.Drop() {
		return
	}
	// In this order: a maker that has its ticket back may send UNLEND at once, and the allocation
	// must not have a reference of ours then.
	m.allocation.Release()
	m.extent.Release()
}

// Offset returns the tensor's offset in its allocation.
func (m *Memory) Offset() uint64 { return m.offset }

// Of returns the memory of a tensor on a device, nil for all other tensors.
func Of(t *infer.Tensor) *Memory {
	if t.Data != nil {
		return nil
	}
	m, _ := t.Memory.(*Memory)
	return m
}
