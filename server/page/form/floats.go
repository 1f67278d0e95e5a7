package form

import (
	"encoding/binary"
	"math"

	"github.com/nereid-serving/nereid/infer"
)

// float returns the first element of data, which has floats of the type.
func float(d infer.DataType, data []byte) float64 {
	switch d {
	case infer.FP16:
		return float64(fromHalf(binary.LittleEndian.Uint16(data)))
	case infer.BF16:
		return float64(fromBrain(binary.LittleEndian.Uint16(data)))
	case infer.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	default:
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
}

// toHalf rounds to the nearest IEEE 754 binary16 number, ties to even.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, exponent, fraction := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127, bits&0x7fffff
	switch {
	case exponent == 128 && fraction != 0:
		return sign | 0x7e00
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14:
		return sign + uint16(rounded(uint32(exponent+14)<<23+0x800000+fraction, 13))
	case exponent >= -25:
		return sign | uint16(rounded(fraction|0x800000, uint(-exponent-1)))
	default:
		return sign
	}
}

// rounded shifts n to the right and rounds to the nearest, ties to even.
func rounded(n uint32, by uint) uint32 {
	kept := n >> by
	switch rest, half := n&(1<<by-1), uint32(1)<<(by-1); {
	case rest > half, rest == half && kept&1 == 1:
		kept++
	}
	return kept
}

// fromHalf is exact.
func fromHalf(h uint16) float32 {
	magnitude := float64(h & 0x3ff)
	switch exponent := int(h >> 10 & 0x1f); {
	case exponent == 31 && magnitude != 0:
		return float32(math.NaN())
	case exponent == 31:
		magnitude = math.Inf(1)
	case exponent == 0:
		magnitude = math.Ldexp(magnitude, -24)
	default:
		magnitude = math.Ldexp(magnitude+1024, exponent-25)
	}
	if h&0x8000 != 0 {
		magnitude = -magnitude
	}
	return float32(magnitude)
}

// toBrain rounds to the nearest bfloat16 number, ties to even.
func toBrain(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16(rounded(bits, 16))
}

func fromBrain(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
