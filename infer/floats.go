package infer

import "math"

// ToFP16 rounds to the nearest IEEE 754 binary16 number, ties to even.
func ToFP16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, exponent, fraction := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127, bits&0x7fffff
	switch {
	case exponent == 128 && fraction != 0:
		return sign | 0x7e00
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14:
		return sign + uint16(shiftRounding(uint32(exponent+14)<<23+0x800000+fraction, 13))
	case exponent >= -25:
		return sign | uint16(shiftRounding(fraction|0x800000, uint(-exponent-1)))
	default:
		return sign
	}
}

// shiftRounding shifts n to the right and rounds to the nearest, ties to even.
func shiftRounding(n uint32, by uint) uint32 {
	kept := n >> by
	switch rest, half := n&(1<<by-1), uint32(1)<<(by-1); {
	case rest > half, rest == half && kept&1 == 1:
		kept++
	}
	return kept
}

// FromFP16 returns the value of an IEEE 754 binary16 number.
func FromFP16(h uint16) float32 {
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

// ToBF16 rounds to the nearest bfloat16 number, ties to even.
func ToBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40
	}
	return uint16(shiftRounding(bits, 16))
}

// FromBF16 returns the value of a bfloat16 number.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
