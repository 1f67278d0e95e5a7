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

// nextField returns the first field of b, which must not be empty, and its length. n is negative if
// b is malformed. A group is skipped as a whole.
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

// eachField calls each for every field of b until it returns an error.
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

// skipField skips the value of a field of s.
func (m *message) skipField(s *source, num uint64, typ protowire.Type) error {
	open := []uint64(nil) // the open groups
	most := uint64(protowire.MaxValidNumber)
	for {
		if num < uint64(protowire.MinValidNumber) || num > most {
			return errUnparsable
		}
		most = math.MaxInt32 // the protobuf library's bound within groups
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

// countVarints returns the number of varints in b, which must contain nothing else.
func countVarints(b []byte) (n int) {
	for _, c := range b {
		if c < 0x80 {
			n++
		}
	}
	return n
}
