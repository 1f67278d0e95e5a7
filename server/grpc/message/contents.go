package message

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
)

// The fields of InferTensorContents, and the type of tensor that each is for.
// int_contents and uint_contents are for the smaller integers too.
var contentTypes = [...]infer.DataType{
	1: infer.Bool, 2: infer.Int32, 3: infer.Int64, 4: infer.Uint32, 5: infer.Uint64,
	6: infer.FP32, 7: infer.FP64, 8: infer.Bytes,
}

// decodeContents keeps an InferTensorContents for later, when the type of its
// tensor is known for sure. own tells that b may be kept as it is.
func (m *message) decodeContents(in *input, b []byte, own bool) error {
	if !contentsValid(b) {
		return errUnparsable
	}
	if own && !in.hasContents {
		in.contents = b[:len(b):len(b)] // a second one would not overwrite what follows
	} else {
		if err := m.take(len(b)); err != nil {
			return err
		}
		in.contents = append(in.contents, b...)
	}
	in.hasContents = true
	return nil
}

// contentsValid reports whether b is a well-formed InferTensorContents.
func contentsValid(b []byte) bool {
	for len(b) > 0 {
		f, n := nextField(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case 1, 2, 3, 4, 5:
			for packed := f.data; len(packed) > 0; {
				_, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return false
				}
				packed = packed[n:]
			}
		case 6:
			if len(f.data)%4 != 0 {
				return false
			}
		case 7:
			if len(f.data)%8 != 0 {
				return false
			}
		}
	}
	return true
}

// typed makes tensor bytes of an input's contents, which must be in the one
// field that is for its type.
func (m *message) typed(in *input, model string, alloc server.Allocator) ([]byte, infer.Memory, error) {
	var counts [9]int
	size := 0 // of the elements of bytes_contents
	for b := in.contents; len(b) > 0; {
		f, n := nextField(b)
		b = b[n:]
		if k := f.count(); k > 0 {
			counts[f.num] += k
			size += 4 + len(f.data)
		}
	}
	chosen := protowire.Number(0)
	for num := protowire.Number(1); num <= 8; num++ {
		if counts[num] == 0 {
			continue
		}
		if chosen != 0 {
			return nil, nil, invalid("unexpected explicit tensor data for input tensor '%s' for model '%s', "+
				"binary data was already supplied.", in.name, model)
		}
		typ := contentTypes[num]
		switch in.dataType {
		case infer.Int8, infer.Int16:
			if num == 2 {
				typ = in.dataType
			}
		case infer.Uint8, infer.Uint16:
			if num == 4 {
				typ = in.dataType
			}
		}
		if typ != in.dataType {
			return nil, nil, invalid("unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', "+
				"expected datatype '%s'", in.name, model, typ, in.dataType)
		}
		chosen = num
	}
	if chosen != 8 {
		size = counts[chosen] * in.dataType.Size()
	}
	data, memory, err := m.room(size, nil, alloc)
	if err != nil {
		return nil, nil, err
	}
	rest := data
	for b := in.contents; len(b) > 0; {
		f, n := nextField(b)
		b = b[n:]
		if f.num == chosen && f.count() > 0 {
			rest = f.store(rest, in.dataType.Size())
		}
	}
	return data, memory, nil
}

// count returns how many elements a field of InferTensorContents adds.
func (f *field) count() int {
	switch {
	case f.num >= 1 && f.num <= 5 && f.typ == protowire.VarintType,
		f.num == 6 && f.typ == protowire.Fixed32Type,
		f.num == 7 && f.typ == protowire.Fixed64Type,
		f.num == 8 && f.typ == protowire.BytesType:
		return 1
	case f.typ != protowire.BytesType:
		return 0
	case f.num >= 1 && f.num <= 5:
		return countVarints(f.data)
	case f.num == 6:
		return len(f.data) / 4
	case f.num == 7:
		return len(f.data) / 8
	}
	return 0
}

// store writes the elements of a field to the head of b, each of the given
// size, and returns what is left of b. Integers lose their upper bits.
func (f *field) store(b []byte, size int) []byte {
	switch {
	case f.num == 8:
		binary.LittleEndian.PutUint32(b, uint32(len(f.data)))
		return b[4+copy(b[4:], f.data):]
	case f.num >= 6 && f.typ == protowire.BytesType:
		return b[copy(b, f.data):]
	case f.typ != protowire.BytesType:
		return storeBits(b, f.num, f.bits, size)
	}
	for packed := f.data; len(packed) > 0; {
		v, n := protowire.ConsumeVarint(packed)
		packed = packed[n:]
		b = storeBits(b, f.num, v, size)
	}
	return b
}

func storeBits(b []byte, num protowire.Number, v uint64, size int) []byte {
	if num == 1 && v != 0 {
		v = 1
	}
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(b, v)
	}
	return b[size:]
}
