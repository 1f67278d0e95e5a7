package infer

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

// IsUnsigned reports whether elements are unsigned integers.
func (d DataType) IsUnsigned() bool { return d >= Uint8 && d <= Uint64 }

// IsSigned reports whether elements are signed integers.
func (d DataType) IsSigned() bool { return d >= Int8 && d <= Int64 }

// IsFloat reports whether elements are floating-point numbers.
func (d DataType) IsFloat() bool { return d >= FP16 && d <= FP64 || d == BF16 }

// PutBits writes the low bits of an integer to an element, which has 1, 2, 4 or 8 bytes.
func PutBits(element []byte, bits uint64) {
	switch len(element) {
	case 1:
		element[0] = byte(bits)
	case 2:
		binary.LittleEndian.PutUint16(element, uint16(bits))
	case 4:
		binary.LittleEndian.PutUint32(element, uint32(bits))
	default:
		binary.LittleEndian.PutUint64(element, bits)
	}
}

// Bits returns the bits of the first element of data. Signed integers are extended to 64 bits. The
// type has a fixed size.
func (d DataType) Bits(data []byte) uint64 {
	var bits uint64
	switch d.Size() {
	case 1:
		bits = uint64(data[0])
	case 2:
		bits = uint64(binary.LittleEndian.Uint16(data))
	case 4:
		bits = uint64(binary.LittleEndian.Uint32(data))
	default:
		bits = binary.LittleEndian.Uint64(data)
	}
	if d.IsSigned() {
		unused := 64 - 8*d.Size()
		bits = uint64(int64(bits) << unused >> unused)
	}
	return bits
}

// Float returns the first element of data, which has floating-point numbers.
func (d DataType) Float(data []byte) float64 {
	switch bits := d.Bits(data); d {
	case FP16:
		return float64(FromFP16(uint16(bits)))
	case BF16:
		return float64(FromBF16(uint16(bits)))
	case FP32:
		return float64(math.Float32frombits(uint32(bits)))
	default:
		return math.Float64frombits(bits)
	}
}

// FloatBits returns the bits of v as an element of a floating-point type.
func (d DataType) FloatBits(v float64) uint64 {
	switch d {
	case FP16:
		return uint64(ToFP16(float32(v)))
	case BF16:
		return uint64(ToBF16(float32(v)))
	case FP32:
		return uint64(math.Float32bits(float32(v)))
	default:
		return math.Float64bits(v)
	}
}

// AppendNumber appends the text of the first element of data, which has booleans or integers.
func (d DataType) AppendNumber(text, data []byte) []byte {
	switch bits := d.Bits(data); {
	case d == Bool:
		return strconv.AppendBool(text, bits != 0)
	case d.IsSigned():
		return strconv.AppendInt(text, int64(bits), 10)
	default:
		return strconv.AppendUint(text, bits, 10)
	}
}

// ParseNumber returns the bits of the element that text describes. The type has a fixed size.
func (d DataType) ParseNumber(text string) (bits uint64, err error) {
	switch size := 8 * d.Size(); {
	case d == Bool:
		var on bool
		if on, err = strconv.ParseBool(text); err != nil {
			return 0, errors.New("want true or false")
		}
		if on {
			return 1, nil
		}
		return 0, nil
	case d.IsUnsigned():
		bits, err = strconv.ParseUint(text, 10, size)
	case d.IsSigned():
		var n int64
		n, err = strconv.ParseInt(text, 10, size)
		bits = uint64(n)
	default:
		var v float64
		v, err = strconv.ParseFloat(text, max(size, 32))
		bits = d.FloatBits(v)
		if d == FP16 && bits&0x7fff == 0x7c00 && !math.IsInf(v, 0) {
			err = strconv.ErrRange
		}
	}
	if err != nil {
		return 0, errors.New("want a number that its type can hold")
	}
	return bits, nil
}
