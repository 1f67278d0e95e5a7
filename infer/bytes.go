package infer

import "encoding/binary"

// BytesScan is the result of walking a tensor of type Bytes.
type BytesScan struct {
	Count int // whole elements
	// Common is the length of all elements, -1 if they differ or there is no element.
	Common int
	// Rest is the number of bytes after the last whole element: 0 if the tensor is well formed,
	// less than 4 if a length is cut off.
	Rest int
	// Want is the claimed length of the last element, if Rest is at least 4.
	Want uint32
}

// ScanBytes walks at most limit elements of a tensor of type Bytes. Each length is loaded once, so
// a process that shares data may change it meanwhile.
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
