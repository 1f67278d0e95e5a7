package stacked

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
)

var errNoNumber = errors.New("want a number that its type can hold")

// element encodes one value of a type as tensors do; a string follows its length.
func element(d infer.DataType, text string) ([]byte, error) {
	var bits uint64
	size := d.Size()
	switch d {
	case infer.Bytes:
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
		return append(b, text...), nil
	case infer.Bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return nil, errors.New("want true or false")
		}
		if yes {
			bits = 1
		}
	case infer.Int8, infer.Int16, infer.Int32, infer.Int64:
		n, err := strconv.ParseInt(text, 10, 8*size)
		if err != nil {
			return nil, errNoNumber
		}
		bits = uint64(n)
	case infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64:
		n, err := strconv.ParseUint(text, 10, 8*size)
		if err != nil {
			return nil, errNoNumber
		}
		bits = n
	case infer.FP16, infer.BF16, infer.FP32:
		f, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return nil, errNoNumber
		}
		switch d {
		case infer.FP16:
			half, ok := halfOf(float32(f))
			if !ok {
				return nil, errNoNumber
			}
			bits = uint64(half)
		case infer.BF16:
			single := math.Float32bits(float32(f))
			bits = uint64((single + 0x7fff + single>>16&1) >> 16) // to the nearest, ties to even
			if math.IsNaN(f) {
				bits = 0x7fc0
			}
		default:
			bits = uint64(math.Float32bits(float32(f)))
		}
	case infer.FP64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errNoNumber
		}
		bits = math.Float64bits(f)
	default:
		return nil, errors.New("it has no data type")
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:size:size], nil
}

// halfOf rounds to IEEE half precision, ties to even. ok is false if a finite number is too large.
func halfOf(f float32) (half uint16, ok bool) {
	sign := uint16(math.Float32bits(f)>>16) & 0x8000
	a := math.Abs(float64(f))
	switch {
	case math.IsNaN(a):
		return 0x7e00, true
	case math.IsInf(a, 0):
		return sign | 0x7c00, true
	case a < 1.0/(1<<14): // subnormal: multiples of 2^-24
		return sign | uint16(math.RoundToEven(a*(1<<24))), true
	}
	fraction, exponent := math.Frexp(a)                 // fraction in [0.5, 1)
	m := uint16(math.RoundToEven(fraction * (1 << 11))) // in [1024, 2048]
	bits := uint32(exponent+13)<<10 + uint32(m)         // m's leading one adds 1 to the exponent
	if bits >= 0x7c00 {
		return 0, false
	}
	return sign | uint16(bits), true
}
