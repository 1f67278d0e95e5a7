package server

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

const upperHex = "0123456789ABCDEF"

// appendJSONString appends s as Triton's writer prints strings: control
// characters, quotes and backslashes are escaped, all other bytes stand as they
// are, whether or not they are UTF-8.
func appendJSONString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// appendJSONFloat appends f with its shortest digits, in the form of Triton's
// writer: always with a point or an exponent, plain up to 21 places before the
// point and 6 behind it, and the tokens NaN, Infinity and -Infinity.
func appendJSONFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	if math.Signbit(f) {
		b = append(b, '-')
		f = -f
	}
	if f == 0 {
		return append(b, "0.0"...)
	}
	if f < 1<<53 && f == math.Trunc(f) {
		return append(strconv.AppendUint(b, uint64(f), 10), '.', '0')
	}
	var scratch [32]byte
	s := strconv.AppendFloat(scratch[:0], f, 'e', -1, 64) // d[.ddd]e±dd
	e := len(s) - 1
	for s[e] != 'e' {
		e--
	}
	point := 0 // where the point stands, counted from the first digit
	for _, c := range s[e+2:] {
		point = point*10 + int(c-'0')
	}
	if s[e+1] == '-' {
		point = -point
	}
	point++
	digits := s[:e]
	if e > 1 { // without its point
		s[1] = s[0]
		digits = s[1:e]
	}
	switch n := len(digits); {
	case n <= point && point <= 21:
		b = append(b, digits...)
		for range point - n {
			b = append(b, '0')
		}
		return append(b, '.', '0')
	case 0 < point && point <= 21:
		b = append(b, digits[:point]...)
		b = append(b, '.')
		return append(b, digits[point:]...)
	case -6 < point && point <= 0:
		b = append(b, '0', '.')
		for range -point {
			b = append(b, '0')
		}
		return append(b, digits...)
	default:
		b = append(b, digits[0])
		if n > 1 {
			b = append(b, '.')
			b = append(b, digits[1:]...)
		}
		return strconv.AppendInt(append(b, 'e'), int64(point-1), 10)
	}
}

// appendJSONData appends the elements of t as a flat array. The bytes have been
// checked against the shape; a BYTES tensor is checked here.
func appendJSONData(b []byte, t *infer.Tensor) ([]byte, error) {
	if t.DataType == infer.FP16 || t.DataType == infer.BF16 {
		return b, infer.Errorf(infer.InvalidArg,
			"sending %s data via JSON is not supported. Please use the binary data format for output", t.DataType)
	}
	b = append(b, '[')
	data, size := t.Data, t.DataType.Size()
	for i := 0; len(data) > 0; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		switch t.DataType {
		case infer.Bool:
			b = strconv.AppendBool(b, data[0] != 0)
		case infer.Uint8:
			b = strconv.AppendUint(b, uint64(data[0]), 10)
		case infer.Uint16:
			b = strconv.AppendUint(b, uint64(binary.LittleEndian.Uint16(data)), 10)
		case infer.Uint32:
			b = strconv.AppendUint(b, uint64(binary.LittleEndian.Uint32(data)), 10)
		case infer.Uint64:
			b = strconv.AppendUint(b, binary.LittleEndian.Uint64(data), 10)
		case infer.Int8:
			b = strconv.AppendInt(b, int64(int8(data[0])), 10)
		case infer.Int16:
			b = strconv.AppendInt(b, int64(int16(binary.LittleEndian.Uint16(data))), 10)
		case infer.Int32:
			b = strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(data))), 10)
		case infer.Int64:
			b = strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(data)), 10)
		case infer.FP32:
			b = appendJSONFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		case infer.FP64:
			b = appendJSONFloat(b, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		case infer.Bytes:
			element, ok := firstElement(data)
			if !ok {
				return b, infer.Errorf(infer.Internal, "output '%s': element %d of the BYTES tensor runs past its end", t.Name, i)
			}
			b = appendJSONString(b, element)
			size = 4 + len(element)
		default:
			return b, infer.Errorf(infer.Internal, "output '%s' has no data type", t.Name)
		}
		data = data[size:]
	}
	return append(b, ']'), nil
}

// firstElement returns the first element of a BYTES tensor's data.
func firstElement(data []byte) (element []byte, ok bool) {
	if len(data) < 4 {
		return nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if n > uint64(len(data)-4) {
		return nil, false
	}
	return data[4 : 4+n], true
}

// appendShape appends a shape as a JSON array, with first before it unless it is 0.
func appendShape(b []byte, first int64, dims []int64) []byte {
	b = append(b, '[')
	if first != 0 {
		b = strconv.AppendInt(b, first, 10)
	}
	for i, d := range dims {
		if i > 0 || first != 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}
