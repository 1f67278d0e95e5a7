package ipc

// PutMap writes the body of MAP: where a region of a client begins in its file, and its
// bytes. The descriptor of the file travels beside the ring, and before the frame.
func PutMap(b []byte, offset, size uint64) {
	_ = b[MapSize-1]
	le.PutUint64(b[0:], offset)
	le.PutUint64(b[8:], size)
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
