package exposition

import (
	"math"
	"strconv"
)

// AppendNumber appends a number as Triton does, with up to 16 digits and no exponent below 10¹⁶, and
// with a digit more where it would be another one.
func AppendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "Nan"...)
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	// Most numbers are counts, and these need neither of the conversions below. A zero may be -0.
	if n := int64(v); v > -1e15 && v < 1e15 && float64(n) == v && (n != 0 || !math.Signbit(v)) {
		return strconv.AppendInt(b, n, 10)
	}
	begin := len(b)
	b = strconv.AppendFloat(b, v, 'g', 16, 64)
	if same, err := strconv.ParseFloat(string(b[begin:]), 64); err != nil || same != v {
		b = strconv.AppendFloat(b[:begin], v, 'g', -1, 64)
	}
	return b
}
