package server

import (
	"encoding/binary"
	"math"

	"github.com/nereid-serving/nereid/infer"
)

// dataMaxDepth is how deep the arrays of a tensor's data may nest.
const dataMaxDepth = 100

func errTooDeep() *infer.Error {
	return infer.Errorf(infer.InvalidArg, "JSON nesting depth exceeds maximum allowed limit (%d)", dataMaxDepth)
}

var (
	errTooManyElements = &infer.Error{Code: infer.Internal, Message: "Unable to parse 'data': Shape does not match true shape of 'data' field"}
	errTooFewElements  = &infer.Error{Code: infer.Internal, Message: "Failed to parse 'data' field: shape does not match true shape"}
)

// leaves walks over the elements of a tensor's data in row-major order: those
// of the outermost array, with all arrays inside flattened.
type leaves struct {
	b     []byte
	i     int // after the opening bracket of an array, or after an element
	depth int
}

// next returns the offset of the next element, or -1 after the last one. The
// caller sets i after that element.
func (l *leaves) next() (int, error) {
	for {
		switch l.b[l.i] {
		case ' ', '\n', '\r', '\t', ',':
			l.i++
		case '[':
			l.i++
			if l.depth++; l.depth > dataMaxDepth {
				return 0, errTooDeep()
			}
		case ']':
			l.i++
			if l.depth--; l.depth == 0 {
				return -1, nil
			}
		default:
			return l.i, nil
		}
	}
}

// dataLeaves begins a walk over the array v.
func dataLeaves(v jsonValue) (leaves, error) {
	if v.first() != '[' {
		return leaves{}, errNotArray
	}
	return leaves{b: v.t.buf, i: v.at + 1, depth: 1}, nil
}

// mostElements bounds how many elements the array v can hold.
func mostElements(v jsonValue) int64 { return int64(len(v.t.buf)-v.at)/2 + 1 }

// readNumbers writes the n elements of the array v into dst, which is n elements
// of type d long, or nil to look for errors only. Integers keep their low bits.
func readNumbers(v jsonValue, d infer.DataType, n int64, dst []byte) error {
	walk, err := dataLeaves(v)
	if err != nil {
		return unableTo("parse", "data", err)
	}
	size := d.Size()
	b := walk.b
	for {
		i, err := walk.next()
		if err != nil {
			return err
		}
		if i < 0 {
			break
		}
		if n--; n < 0 {
			return errTooManyElements
		}
		var u uint64
		switch d {
		case infer.FP32, infer.FP64:
			f, end, ok := readFloat(b, i)
			if !ok {
				return unableTo("parse", "data", errNotDouble)
			}
			walk.i = end
			if d == infer.FP64 {
				u = math.Float64bits(f)
			} else {
				u = uint64(math.Float32bits(float32(f)))
			}
		case infer.Bool:
			switch b[i] {
			case 't':
				u, walk.i = 1, i+4
			case 'f':
				walk.i = i + 5
			default:
				return unableTo("parse", "data", errNotBool)
			}
		case infer.Uint8, infer.Uint16, infer.Uint32, infer.Uint64:
			kind, x, end := readNumber(b, i)
			if kind != smallNumber && kind != bigNumber {
				return unableTo("parse", "data", errNotUnsigned)
			}
			u, walk.i = x, end
		default:
			kind, x, end := readNumber(b, i)
			if kind != smallNumber && kind != negativeNumber {
				return unableTo("parse", "data", errNotSigned)
			}
			u, walk.i = x, end
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
func stringsSize(v jsonValue) (int64, error) {
	walk, err := dataLeaves(v)
	if err != nil {
		return 0, unableTo("parse", "data", err)
	}
	var n int64
	for {
		i, err := walk.next()
		if err != nil {
			return 0, err
		}
		if i < 0 {
			return n, nil
		}
		if walk.b[i] != '"' {
			return 0, &infer.Error{Code: infer.Internal, Message: "Unable to parse JSON bytes array: " + errNotString.Message}
		}
		var s jsonString
		s, walk.i = stringAt(walk.b, i)
		n += 4 + int64(s.length())
	}
}

// readStrings appends the strings of the array v, which stringsSize has
// measured, to dst.
func readStrings(v jsonValue, dst []byte) []byte {
	walk, _ := dataLeaves(v)
	for {
		i, err := walk.next()
		if i < 0 || err != nil {
			return dst
		}
		var s jsonString
		s, walk.i = stringAt(walk.b, i)
		dst = s.appendElement(dst)
	}
}
