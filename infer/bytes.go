package infer

import "encoding/binary"

// BytesScan is what walking a tensor of type Bytes found.
type BytesScan struct {
	Count int // whole elements
	// Common is the length that all elements have, -1 if they differ or there
	// are none.
	Common int
	// Rest is how many bytes are left after the last whole element: 0 if the
	// tensor is well formed, less than 4 if a length is cut off.
	Rest int
	// Want is, if Rest is 4 or more, the length that the last element claims.
	Want uint32
}

// ScanBytes walks the elements of a tensor of type Bytes, at most limit of
// them. Each length is loaded once, so data may be changed meanwhile by the process that
// shares it.
func ScanBytes(data []byte, limit int) BytesScan {
	s := BytesScan{Common: -1}
	differ := false
	for len(data) >= 4 && s.Count < limit {
		n := binary.LittleEndian.Uint32(data)
		if uint64(n) > uint64(len(data)-4) {
			s.Want = n
			break
		}
		data = data[4+int(n):]
		if s.Count == 0 {
			s.Common = int(n)
		}
		differ = differ || s.Common != int(n)
		s.Count++
	}
	if differ {
		s.Common = -1
	}
	s.Rest = len(data)
	return s
}
