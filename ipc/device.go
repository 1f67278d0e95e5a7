package ipc

import (
	"math"

	"github.com/nereid-serving/nereid/shm/foreign"
)

// maxDevice is above the number of any device; it keeps a stub from filling the log.
const maxDevice = 1 << 16

// PutAllocation writes the body of ALLOCATION.
func PutAllocation(b []byte, m *foreign.Device) {
	_ = b[AllocationSize-1]
	le.PutUint32(b[0:], m.Number)
	le.PutUint32(b[4:], 0)
	le.PutUint64(b[8:], m.Size)
	copy(b[16:], m.UUID[:])
	copy(b[32:], m.Handle[:])
}

// ParseAllocation reads the body of LEND. The caller owns the reference to the result.
func ParseAllocation(body []byte) (*foreign.Device, error) {
	if len(body) != AllocationSize {
		return nil, Broken("frame", "LEND has %d bytes, want %d", len(body), AllocationSize)
	}
	device, size := le.Uint32(body[0:]), le.Uint64(body[8:])
	if device >= maxDevice || size == 0 || size > math.MaxInt64 {
		return nil, Broken("device", "LEND of %d bytes on device %d", size, device)
	}
	return foreign.NewDevice(device, [16]byte(body[16:32]), size, foreign.Handle(body[32:])), nil
}
