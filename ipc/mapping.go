package ipc

// PutMap writes the body of MAP: the offset of a client's region in its file, its size, and whether
// the stub writes outputs or reads inputs there. The file's descriptor travels through the socket,
// before the frame.
func PutMap(b []byte, offset, size uint64, writable bool) {
	_ = b[MapSize-1]
	le.PutUint64(b[0:], offset)
	le.PutUint64(b[8:], size)
	le.PutUint64(b[16:], 0)
	if writable {
		b[16] = 1
	}
}

// Kinds of places.
const (
	PlaceRegion     uint16 = 0 // a range of a client's region that the stub has mapped writable
	PlaceDevice     uint16 = 1 // the device of the output; all other fields are 0
	PlaceAllocation uint16 = 2 // a range of a client's announced allocation on a device
)

// Place is the location where an output is wanted, or may stay.
type Place struct {
	Name           uint16 // index of the output; AllOutputs, of PlaceDevice
	Kind           uint16
	Region         uint32 // number of the mapping, or of the allocation
	Offset, Length uint64 // bytes, from the beginning of the region or allocation
}

// Put writes the place and returns the rest of b.
func (p *Place) Put(b []byte) []byte {
	_ = b[PlaceSize-1]
	le.PutUint16(b[0:], p.Name)
	le.PutUint16(b[2:], p.Kind)
	le.PutUint32(b[4:], p.Region)
	le.PutUint64(b[8:], p.Offset)
	le.PutUint64(b[16:], p.Length)
	return b[PlaceSize:]
}

// ParseMapped reads the body of MAPPED.
func ParseMapped(body []byte) (status uint32, err error) {
	if len(body) != MappedSize {
		return 0, Broken("frame", "MAPPED has %d bytes, want %d", len(body), MappedSize)
	}
	if status = le.Uint32(body); status > MapEnded {
		return 0, Broken("region", "MAPPED has status %d", status)
	}
	return status, nil
}
