package foreign

import "sync/atomic"

// Handle is the CUDA handle with which another process opens an allocation (CUipcMemHandle).
type Handle [64]byte

// Device is an allocation on a device that its maker lets other processes open. This process
// touches none of its bytes but tracks its users. It ends with the last Release, which calls the
// functions of OnEnd.
type Device struct {
	Number uint32   // the maker's number; for logs
	UUID   [16]byte // of the device
	Size   uint64   // bytes
	Handle Handle

	ending Ending
	refs   atomic.Int32
}

// NewDevice describes an allocation; the caller has the only reference.
func NewDevice(number uint32, uuid [16]byte, size uint64, handle Handle) *Device {
	m := &Device{Number: number, UUID: uuid, Size: size, Handle: handle}
	m.refs.Store(1)
	return m
}

// OnEnd makes the last Release call gone, and returns a function that cancels the call. The caller
// has a reference.
func (m *Device) OnEnd(gone func()) (forget func()) { return m.ending.OnEnd(gone) }

// Retain adds a reference.
func (m *Device) Retain() {
	if m.refs.Add(1) <= 1 {
		panic("foreign: device memory retained after its last release")
	}
}

// Release drops a reference.
func (m *Device) Release() {
	switch n := m.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("foreign: device memory released more often than retained")
	}
	m.ending.End()
}

// Sole reports whether the caller's reference is the only one. That stays true unless the caller
// adds references.
func (m *Device) Sole() bool { return m.refs.Load() == 1 }

// Has reports whether [offset, offset+n) lies inside.
func (m *Device) Has(offset, n uint64) bool { return offset <= m.Size && n <= m.Size-offset }
