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
		return float64(infer.FromFP16(binary.LittleEndian.Uint16(data)))
	case infer.BF16:
		return float64(infer.FromBF16(binary.LittleEndian.Uint16(data)))
	case infer.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	default:
		return math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
}
