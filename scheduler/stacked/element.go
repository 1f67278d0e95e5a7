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
		return append(b, text...), nil // bound: a text of the config
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
			half := infer.ToFP16(float32(f))
			if half&0x7fff == 0x7c00 && !math.IsInf(f, 0) { // too large
				return nil, errNoNumber
			}
			bits = uint64(half)
		case infer.BF16:
			bits = uint64(infer.ToBF16(float32(f)))
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
