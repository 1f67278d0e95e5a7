package values

import (
	"encoding/binary"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/jsontext"
)

var (
	errTooManyElements = &infer.Error{Code: infer.Internal, Message: "Unable to parse 'data': Shape does not match true shape of 'data' field"}
	errTooFewElements  = &infer.Error{Code: infer.Internal, Message: "Failed to parse 'data' field: shape does not match true shape"}
)

// ReadNumbers writes n elements of type d, the leaves of a value, to dst, which has n elements, or
// only checks them if dst is nil. Integers keep their low bits. The caller handles types without a
// fixed size in JSON (FP16, BF16, BYTES).
func ReadNumbers(walk jsontext.Leaves, d infer.DataType, n int64, dst []byte) error {
	size := d.Size()
	for walk.Next() {
		if n--; n < 0 {
			return errTooManyElements
		}
		var u uint64
		var err error
		switch {
		case d.IsFloat():
			var f float64
			f, err = walk.Float()
			u = d.FloatBits(f)
		case d == infer.Bool:
			var on bool
			if on, err = walk.Bool(); on {
				u = 1
			}
		case d.IsUnsigned():
			u, err = walk.Uint()
		default:
			var x int64
			x, err = walk.Int()
			u = uint64(x)
		}
		if err != nil {
			return UnableTo("parse", "data", err)
		}
		if dst == nil {
			continue
		}
		infer.PutBits(dst[:size], u)
		dst = dst[size:]
	}
	if n > 0 {
		return errTooFewElements
	}
	return nil
}

// StringsSize returns the size of strings, the leaves of a value, as a BYTES tensor. The core
// checks their number.
func StringsSize(walk jsontext.Leaves) (int64, error) {
	var n int64
	for walk.Next() {
		s, err := walk.Text()
		if err != nil {
			return 0, infer.Errorf(infer.Internal, "Unable to parse JSON bytes array: %v", err)
		}
		n += 4 + int64(s.Len())
	}
	return n, nil
}

// ReadStrings appends the strings that StringsSize has measured to dst.
//
// bound: dst has room for StringsSize
func ReadStrings(walk jsontext.Leaves, dst []byte) []byte {
	for walk.Next() {
		s, _ := walk.Text()
		at := len(dst)
		dst = s.AppendTo(append(dst, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst
}

// numberBytes bounds the text of a number and the comma before it.
const numberBytes = 32

// AppendElements appends the elements of t, separated by commas and without brackets, and charges
// for the room that b lacks. The bytes have been checked against the shape; a BYTES tensor is
// checked here. FP16 and BF16 have no form in JSON.
func AppendElements(c *budget.Charge, b []byte, t *infer.Tensor) ([]byte, error) {
	if t.DataType == infer.FP16 || t.DataType == infer.BF16 {
		return b, infer.Errorf(infer.InvalidArg,
			"sending %s data via JSON is not supported. Please use the binary data format for output", t.DataType)
	}
	data, size := t.Data, t.DataType.Size()
	for i := 0; len(data) > 0; i++ {
		room := numberBytes
		var element []byte
		if t.DataType == infer.Bytes {
			var ok bool
			if element, ok = firstElement(data); !ok {
				return b, infer.Errorf(infer.Internal, "output '%s': element %d of the BYTES tensor runs past its end", t.Name, i)
			}
			room, size = jsontext.TextBytes(element), 4+len(element)
		}
		if room > cap(b)-len(b) {
			var err error
			if b, err = budget.Grow(c, budget.JSON, b, room); err != nil {
				return b, err
			}
		}
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case t.DataType == infer.Bytes:
			b = jsontext.AppendString(b, element)
		case t.DataType.IsFloat():
			b = jsontext.AppendFloat(b, t.DataType.Float(data))
		case size > 0:
			b = t.DataType.AppendNumber(b, data)
		default:
			return b, infer.Errorf(infer.Internal, "output '%s' has no data type", t.Name)
		}
		data = data[size:]
	}
	return b, nil
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

// IsSingle reports whether t has one element. The bytes have been checked against the shape, except
// for BYTES.
func IsSingle(t *infer.Tensor) bool {
	if t.DataType != infer.Bytes {
		return len(t.Data) == t.DataType.Size() && len(t.Data) > 0
	}
	element, ok := firstElement(t.Data)
	return ok && len(t.Data) == 4+len(element)
}
