package message

import (
	"encoding/binary"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
)

// contentFields describes the fields of InferTensorContents: the data type of their tensors, and
// the wire type of an unpacked element. int_contents and uint_contents also carry smaller integers.
var contentFields = [...]struct {
	tensor infer.DataType
	wire   protowire.Type
}{
	1: {infer.Bool, protowire.VarintType}, 2: {infer.Int32, protowire.VarintType}, 3: {infer.Int64, protowire.VarintType},
	4: {infer.Uint32, protowire.VarintType}, 5: {infer.Uint64, protowire.VarintType},
	6: {infer.FP32, protowire.Fixed32Type}, 7: {infer.FP64, protowire.Fixed64Type}, 8: {infer.Bytes, protowire.BytesType},
}

// contents is a well-formed InferTensorContents. Concatenation merges two of them.
type contents struct {
	wire  []byte
	given bool // the field is present, possibly empty
	// fields has a bit for each field with elements. count is the number of elements, size the
	// length of a BYTES tensor of them.
	fields      uint16
	count, size int
}

// decodeContents keeps an InferTensorContents until the type of its tensor is known. It may keep b
// itself if own is true.
func (m *message) decodeContents(c *contents, b []byte, own bool) error {
	err := eachField(b, func(f field) error {
		n, ok := f.elements()
		if !ok {
			return errUnparsable
		}
		if n > 0 {
			c.fields |= 1 << f.num
			c.count += n
			c.size += 4 + len(f.data)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if own && !c.given {
		c.wire = b[:len(b):len(b)] // an append for a second one must not overwrite the rest of b
	} else {
		if err := m.take(2 * len(b)); err != nil { // append doubles
			return err
		}
		c.wire = append(c.wire, b...) // bound: charged
	}
	c.given = true
	return nil
}

// typed returns the tensor bytes of an input's contents. All elements must be in the field for the
// input's data type.
func (m *message) typed(in *input, model string, alloc server.Allocator) ([]byte, infer.Memory, error) {
	c := &in.contents
	var num protowire.Number // 0 if there is no element
	if c.fields != 0 {
		num = protowire.Number(bits.TrailingZeros16(c.fields))
		typ := contentFields[num].tensor
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
		if c.fields != 1<<num {
			return nil, nil, invalid("unexpected explicit tensor data for input tensor '%s' for model '%s', "+
				"binary data was already supplied.", in.name, model)
		}
	}
	size := c.size
	if num != 8 {
		size = c.count * in.dataType.Size()
	}
	data, memory, err := m.room(size, nil, alloc)
	if err != nil {
		return nil, nil, err
	}
	rest := data
	for b := c.wire; len(b) > 0; {
		f, n := nextField(b)
		b = b[n:]
		if num != 0 && f.num == num && (f.typ == protowire.BytesType || f.typ == contentFields[num].wire) {
			rest = f.store(rest, in.dataType.Size())
		}
	}
	return data, memory, nil
}

// elements returns the number of elements in a field of InferTensorContents, or 0 if its wire type
// does not fit its number. ok is false if it is malformed.
func (f *field) elements() (n int, ok bool) {
	if f.num < 1 || int(f.num) >= len(contentFields) {
		return 0, true
	}
	wire := contentFields[f.num].wire
	switch {
	case f.typ == wire:
		return 1, true
	case f.typ != protowire.BytesType:
		return 0, true
	case wire == protowire.Fixed32Type:
		return len(f.data) / 4, len(f.data)%4 == 0
	case wire == protowire.Fixed64Type:
		return len(f.data) / 8, len(f.data)%8 == 0
	}
	for packed := f.data; len(packed) > 0; n++ {
		_, k := protowire.ConsumeVarint(packed)
		if k < 0 {
			return 0, false
		}
		packed = packed[k:]
	}
	return n, true
}

// store writes the elements of a field to the start of b, size bytes each, and returns the rest of
// b. Integers lose their upper bits.
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
	infer.PutBits(b[:size], v)
	return b[size:]
}
