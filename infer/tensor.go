package infer

import (
	"math"
	"strconv"
)

// Memory is the owner of bytes that do not lie on the Go heap: a block of a
// pool, or Foreign. Retain and Release may be called from any
// goroutine; the bytes are valid until as many Releases as Retains, and one
// more for the reference that came with them.
type Memory interface {
	Retain()
	Release()
}

// Tensor is a named array. Data is row-major and little-endian; elements of
// Bytes are each a 4-byte length and that many bytes, without padding (the
// binary tensor data extension of the KServe protocol v2).
type Tensor struct {
	Name     string
	DataType DataType
	Shape    []int64
	Data     []byte // nil of a tensor in Foreign memory; Size tells the bytes of any
	Memory   Memory // owner of Data, nil for the Go heap
}

// Retain keeps the tensor's bytes valid until a further Release.
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

// ElementCount multiplies the dimensions of shape. ok is false where a
// dimension is negative or the product overflows int64. A shape without
// dimensions counts 0 elements, as the protocol's servers count it; use
// Elements for a tensor that a model made, whose scalars count 1.
func ElementCount(shape []int64) (n int64, ok bool) {
	if len(shape) == 0 {
		return 0, true
	}
	return Elements(shape)
}

// Elements multiplies the dimensions of shape; a scalar has one element. ok is
// false where a dimension is negative or the product overflows int64. A zero
// anywhere makes the product zero, whatever the other dimensions are.
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

// ByteSize returns the bytes of a tensor of fixed-size elements; ok is false on
// overflow, on negative dimensions and for types without a fixed size.
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

// ShapeFits reports whether a shape is one that a config's dims allow, where -1
// allows any number.
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

// ShapeString prints a shape as error texts do: "[1,16]".
func ShapeString(shape []int64) string {
	b := make([]byte, 0, 2+4*len(shape))
	b = append(b, '[')
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']'))
}
