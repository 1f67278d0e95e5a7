package message

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message in memory.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	bits uint64 // of a varint or a fixed field
	data []byte // of a field of bytes
}

// nextField takes the first field of b, which is not empty, and returns the
// bytes that it occupies; they are negative if b is malformed. A group is
// passed over whole.
func nextField(b []byte) (f field, n int) {
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return f, n
	}
	num := tag >> 3
	if num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return f, -1
	}
	f.num, f.typ = protowire.Number(num), protowire.Type(tag&7)
	m := 0
	switch f.typ {
	case protowire.VarintType:
		f.bits, m = protowire.ConsumeVarint(b[n:])
	case protowire.Fixed64Type:
		f.bits, m = protowire.ConsumeFixed64(b[n:])
	case protowire.Fixed32Type:
		var v uint32
		v, m = protowire.ConsumeFixed32(b[n:])
		f.bits = uint64(v)
	case protowire.BytesType:
		f.data, m = protowire.ConsumeBytes(b[n:])
	default:
		m = protowire.ConsumeFieldValue(f.num, f.typ, b[n:])
	}
	if m < 0 {
		return f, m
	}
	return f, n + m
}

// eachField calls each for the fields of b, until one fails.
func eachField(b []byte, each func(f field) error) error {
	for len(b) > 0 {
		f, n := nextField(b)
		if n < 0 {
			return errUnparsable
		}
		b = b[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// skipField passes over the value of a field of s.
func (m *message) skipField(s *source, num uint64, typ protowire.Type) error {
	open := []uint64(nil) // the groups that are not closed
	most := uint64(protowire.MaxValidNumber)
	for {
		if num < uint64(protowire.MinValidNumber) || num > most {
			return errUnparsable
		}
		most = math.MaxInt32 // within groups the protobuf library lets that pass
		var err error
		switch typ {
		case protowire.VarintType:
			_, err = s.uvarint()
		case protowire.Fixed32Type:
			err = s.skip(4)
		case protowire.Fixed64Type:
			err = s.skip(8)
		case protowire.BytesType:
			var n uint64
			if n, err = s.uvarint(); err == nil {
				if n > uint64(s.left) {
					return errUnparsable
				}
				err = s.skip(int(n))
			}
		case protowire.StartGroupType:
			if len(open) == maxDepth {
				return errUnparsable
			}
			if err = m.grow(2 * 8); err == nil {
				open = append(open, num) // bound: maxDepth
			}
		case protowire.EndGroupType:
			if len(open) == 0 || open[len(open)-1] != num {
				return errUnparsable
			}
			open = open[:len(open)-1]
		default:
			return errUnparsable
		}
		if err != nil || len(open) == 0 {
			return err
		}
		tag, err := s.uvarint()
		if err != nil {
			return err
		}
		num, typ = tag>>3, protowire.Type(tag&7)
	}
}

// countVarints returns how many varints b holds, if it holds nothing else.
func countVarints(b []byte) (n int) {
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}
