package inference

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
	"github.com/nereid-serving/nereid/server/rest/body"
)

var (
	errTooManyElements = &infer.Error{Code: infer.Internal, Message: "Unable to parse 'data': Shape does not match true shape of 'data' field"}
	errTooFewElements  = &infer.Error{Code: infer.Internal, Message: "Failed to parse 'data' field: shape does not match true shape"}
)

// readNumbers writes the n elements of the array v into dst, which is n elements
// of type d long, or nil to look for errors only. Integers keep their low bits.
func readNumbers(v jsontext.Value, d infer.DataType, n int64, dst []byte) error {
	walk, err := v.Leaves()
	if err != nil {
		return unableTo("parse", "data", err)
	}
	size := d.Size()
	for {
		more, err := walk.Next()
		if err != nil {
			return body.RefuseJSON(err)
		}
		if !more {
			break
		}
		if n--; n < 0 {
			return errTooManyElements
		}
		var u uint64
		switch d {
		case infer.FP32, infer.FP64:
			var f float64
			f, err = walk.Float()
			if d == infer.FP64 {
				u = math.Float64bits(f)
			} else {
				u = uint64(math.Float32bits(float32(f)))
			}
		case infer.Bool:
			var on bool
			if on, err = walk.Bool(); on {
				u = 1
			}
		case infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64:
			u, err = walk.Uint()
		default:
			var x int64
			x, err = walk.Int()
			u = uint64(x)
		}
		if err != nil {
			return unableTo("parse", "data", err)
		}
		if dst == nil {
			continue
		}
		switch size {
		case 1:
			dst[0] = byte(u)
		case 2:
			binary.LittleEndian.PutUint16(dst, uint16(u))
		case 4:
			binary.LittleEndian.PutUint32(dst, uint32(u))
		default:
			binary.LittleEndian.PutUint64(dst, u)
		}
		dst = dst[size:]
	}
	if n > 0 {
		return errTooFewElements
	}
	return nil
}

// stringsSize returns the bytes that the strings of the array v take as a BYTES
// tensor; their number is for the core to check.
func stringsSize(v jsontext.Value) (int64, error) {
	walk, err := v.Leaves()
	if err != nil {
		return 0, unableTo("parse", "data", err)
	}
	var n int64
	for {
		more, err := walk.Next()
		if err != nil {
			return 0, body.RefuseJSON(err)
		}
		if !more {
			return n, nil
		}
		s, err := walk.Text()
		if err != nil {
			return 0, infer.Errorf(infer.Internal, "Unable to parse JSON bytes array: %v", err)
		}
		n += 4 + int64(s.Len())
	}
}

// readStrings appends the strings of the array v, which stringsSize has
// measured, to dst.
func readStrings(v jsontext.Value, dst []byte) []byte {
	walk, _ := v.Leaves()
	for {
		if more, err := walk.Next(); !more || err != nil {
			return dst
		}
		s, _ := walk.Text()
		at := len(dst)
		dst = s.AppendTo(append(dst, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
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
			b = jsontext.AppendFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
		case infer.FP64:
			b = jsontext.AppendFloat(b, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		case infer.Bytes:
			element, ok := firstElement(data)
			if !ok {
				return b, infer.Errorf(infer.Internal, "output '%s': element %d of the BYTES tensor runs past its end", t.Name, i)
			}
			b = jsontext.AppendString(b, element)
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
