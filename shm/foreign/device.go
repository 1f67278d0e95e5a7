package foreign

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

	References
	ending Ending
}

// NewDevice describes an allocation; the caller has the only reference.
func NewDevice(number uint32, uuid [16]byte, size uint64, handle Handle) *Device {
	return &Device{Number: number, UUID: uuid, Size: size, Handle: handle}
}

// OnEnd makes the last Release call gone, and returns a function that cancels the call. The caller
// has a reference.
func (m *Device) OnEnd(gone func()) (forget func()) { return m.ending.OnEnd(gone) }

// Release drops a reference.
func (m *Device) Release() {
	if m.Drop() {
		m.ending.End()
	}
}

// Has reports whether [offset, offset+n) lies inside.
func (m *Device) Has(offset, n uint64) bool { return offset <= m.Size && n <= m.Size-offset }
