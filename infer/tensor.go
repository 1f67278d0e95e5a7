package infer

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Memory owns bytes outside the Go heap: a block of a pool, or Foreign. Retain and Release may be
// called from any goroutine. The bytes are valid until Release has been called once more often than
// Retain.
type Memory interface {
	Retain()
	Release()
}

// Tensor is a named array. Data is row-major and little-endian. Elements of Bytes consist of a
// 4-byte length and their bytes, without padding (the binary tensor data extension of the KServe
// protocol v2).
type Tensor struct {
	Name     string
	DataType DataType
	Shape    []int64
	Data     []byte // nil in Foreign memory; see Size
	Memory   Memory // owner of Data; nil for the Go heap
}

// Retain keeps the tensor's bytes valid until another Release.
func (t *Tensor) Retain() {
	if t.Memory != nil {
		t.Memory.Retain()
	}
}

// Release gives up one reference to the tensor's bytes.
func (t *Tensor) Release() {
	if t.Memory != nil {
		t.Memory.Release()
	}
}

// ElementCount is Elements, but returns 0 for a shape without dimensions, as servers of the
// protocol do for tensors of clients. Scalars of models have one element.
func ElementCount(shape []int64) (n int64, ok bool) {
	if len(shape) == 0 {
		return 0, true
	}
	return Elements(shape)
}

// Elements returns the product of the dimensions; a scalar has one element. ok is false if a
// dimension is negative or the product overflows int64. A zero anywhere makes the product zero.
func Elements(shape []int64) (n int64, ok bool) {
	n = 1
	overflow := false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, false
		case d == 0:
			n = 0
		case n > math.MaxInt64/d:
			overflow = true
		default:
			n *= d
		}
	}
	if n == 0 {
		return 0, true
	}
	return n, !overflow
}

// ByteSize returns the size of a tensor with fixed-size elements. ok is false on overflow, for
// negative dimensions and for types without a fixed size.
func ByteSize(d DataType, shape []int64) (n int64, ok bool) {
	size := int64(d.Size())
	if size == 0 {
		return 0, false
	}
	n, ok = Elements(shape)
	if !ok || n > math.MaxInt64/size {
		return 0, false
	}
	return n * size, true
}

// ShapeFits reports whether a shape matches the dims of a config, where -1 allows any number.
func ShapeFits(shape, dims []int64) bool {
	if len(shape) != len(dims) {
		return false
	}
	for i, d := range dims {
		if d != -1 && shape[i] != d {
			return false
		}
	}
	return true
}

// ShapeString formats a shape for error texts: "[1,16]".
func ShapeString(shape []int64) string {
	b := make([]byte, 0, 2+4*len(shape)) // bound: the dimensions, which are charged
	b = append(b, '[')
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']')) // bound: the dimensions, which are charged
}

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
