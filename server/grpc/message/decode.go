package message

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server"
)

const (
	// BlockSize is the size above which a tensor's bytes go into memory of the Allocator. Smaller
	// tensors share a buffer on the Go heap.
	BlockSize = 4096
	// smallBuffer is the maximum size of that buffer.
	smallBuffer = 16 << 10
	// maxWeight bounds the Go structures made from one message: a field of two bytes on the wire
	// may need hundreds of bytes in memory.
	maxWeight = 16 << 20
	// The memory of an element until its request has been served: in the message, in a slice that
	// has just doubled, and in the infer.Request.
	inputWeight     = 512
	outputWeight    = 256
	parameterWeight = 256
	rawWeight       = 96
	// stepWeight is the minimum that is charged at once for small elements.
	stepWeight = 4 << 10
	// maxDepth bounds the nesting of groups, as in the protobuf library.
	maxDepth = 10000
)

var errWeight = &OutOfMemory{Text: "the request has too many inputs, outputs, parameters or dimensions"}

// message is a decoded ModelInferRequest.
type message struct {
	model, version, id string

	params  []param
	inputs  []input
	outputs []output
	raw     []raw

	small    []byte         // unused rest of the buffer for small tensors
	memories []infer.Memory // held until release
	charge   budget.Charge
	weight   int   // bytes of Go structures
	credit   int   // bytes that are charged and not used yet
	given    int64 // bytes of the names and values of all parameters
}

type input struct {
	name     string
	dataType infer.DataType
	shape    []int64
	params   []param
	contents contents
}

type output struct {
	name   string
	params []param
}

// raw is an entry of raw_input_contents.
type raw struct {
	data   []byte
	memory infer.Memory // nil on the Go heap
}

// param is an entry of a parameter map. The last entry with a name counts.
type param struct {
	name  string
	value value
}

// value is an InferParameter. kind is the number of the field that is set, or 0.
type value struct {
	kind   protowire.Number
	bits   uint64
	string string
}

// The field numbers of an InferParameter.
const (
	boolParam   protowire.Number = 1
	int64Param  protowire.Number = 2
	stringParam protowire.Number = 3
	doubleParam protowire.Number = 4
	uint64Param protowire.Number = 5
)

// release releases all memory of the message.
func (m *message) release() {
	for _, memory := range m.memories {
		memory.Release()
	}
	m.memories = nil
	m.charge.Settle()
}

// grow charges n bytes of structures.
func (m *message) grow(n int) error {
	m.weight += n
	if m.weight > maxWeight {
		return errWeight
	}
	return m.take(n)
}

// take charges n bytes before they are allocated. It charges the account in larger steps.
func (m *message) take(n int) error {
	if n > m.credit {
		more := max(n-m.credit, stepWeight)
		if err := m.charge.Take(budget.Bodies, int64(more)); err != nil {
			return AsOutOfMemory(err)
		}
		m.credit += more
	}
	m.credit -= n
	return nil
}

// check returns an error if a value of n bytes exceeds its limit. flag is the flag that changes the
// limit, or "".
func check(what string, n, most int64, flag string) error {
	if n <= most {
		return nil
	}
	if flag != "" {
		flag = "; " + flag + " changes the limit"
	}
	return invalid("%s has %d bytes, but at most %d are allowed%s", what, n, most, flag)
}

// decode reads a ModelInferRequest to the end of s. Within the limits of single values it accepts
// the same input as proto.Unmarshal, and returns errUnparsable for all other input. Other errors
// are an *infer.Error for a limit, an *OutOfMemory, or an error of the transport.
func (m *message) decode(s *source, alloc server.Allocator) error {
	for s.left > 0 {
		tag, err := s.uvarint()
		if err != nil {
			return err
		}
		num, typ := tag>>3, protowire.Type(tag&7)
		if num >= 1 && num <= 7 && typ == protowire.BytesType {
			n, err := s.uvarint()
			if err != nil {
				return err
			}
			if n > uint64(s.left) {
				return errUnparsable
			}
			if err := m.decodeField(protowire.Number(num), int(n), s, alloc); err != nil {
				return err
			}
			continue
		}
		if err := m.skipField(s, num, typ); err != nil {
			return err
		}
	}
	return nil
}

func (m *message) decodeField(num protowire.Number, n int, s *source, alloc server.Allocator) error {
	var err error
	switch num { // before the text is collected
	case 1:
		err = check("model_name", int64(n), budget.MaxName, "")
	case 2:
		err = check("model_version", int64(n), budget.MaxName, "")
	case 3:
		err = check("id", int64(n), m.charge.Limits().RequestID, "--client-max-id-size")
	case 4:
		err = check("a parameter", int64(n), m.charge.Limits().Parameters, "--client-max-parameters-size")
	case 7:
		return m.decodeRaw(n, s, alloc)
	}
	if err != nil {
		return err
	}
	b, own, err := s.take(n)
	if err != nil {
		return err
	}
	switch num {
	case 1:
		m.model, err = m.text(b)
	case 2:
		m.version, err = m.text(b)
	case 3:
		m.id, err = m.text(b)
	case 4:
		m.params, err = m.decodeParam(m.params, b)
	case 5:
		err = m.decodeInput(b, own)
	case 6:
		err = m.decodeOutput(b)
	}
	return err
}

// decodeRaw copies the bytes of a tensor to their final memory.
func (m *message) decodeRaw(n int, s *source, alloc server.Allocator) error {
	if err := m.grow(rawWeight); err != nil {
		return err
	}
	data, lent, err := m.room(n, s, alloc)
	if err != nil {
		return err
	}
	m.raw = append(m.raw, raw{data, lent}) // bound: weighed
	return s.copyTo(data)
}

// room returns n bytes that are valid until release.
func (m *message) room(n int, s *source, alloc server.Allocator) ([]byte, infer.Memory, error) {
	if n > BlockSize {
		if s != nil {
			if err := s.await(n); err != nil {
				return nil, nil, err
			}
		}
		if alloc == nil {
			b, err := budget.Make[byte](&m.charge, budget.Bodies, n)
			return b, nil, AsOutOfMemory(err)
		}
		data, lent, err := alloc(n)
		if err != nil {
			return nil, nil, AsOutOfMemory(err)
		}
		if lent != nil {
			m.memories = append(m.memories, lent) // bound: one for each tensor, which has been weighed
			m.charge.HoldBlocks(int64(n))
		}
		return data[:n:n], lent, nil
	}
	if n > len(m.small) {
		size := n
		if s != nil {
			size = max(n, min(s.left, smallBuffer))
		}
		if err := m.take(size); err != nil {
			return nil, nil, err
		}
		m.small = make([]byte, size) // bound: charged
	}
	data := m.small[:n:n]
	m.small = m.small[n:]
	return data, nil, nil
}

// decodeInput reads an InferInputTensor. It may keep b if own is true.
func (m *message) decodeInput(b []byte, own bool) error {
	if err := m.grow(inputWeight); err != nil {
		return err
	}
	var in input
	err := eachField(b, func(f field) (err error) {
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			in.name, err = m.name("the name of a tensor", f.data)
		case f.num == 2 && f.typ == protowire.BytesType:
			in.dataType, err = dataTypeOf(f.data)
		case f.num == 3 && f.typ == protowire.VarintType:
			if err = m.grow(2 * 8); err == nil {
				in.shape = append(in.shape, int64(f.bits)) // bound: weighed
			}
		case f.num == 3 && f.typ == protowire.BytesType:
			err = m.decodeShape(&in, f.data)
		case f.num == 4 && f.typ == protowire.BytesType:
			in.params, err = m.decodeParam(in.params, f.data)
		case f.num == 5 && f.typ == protowire.BytesType:
			err = m.decodeContents(&in.contents, f.data, own)
		}
		return err
	})
	m.inputs = append(m.inputs, in) // bound: weighed
	return err
}

// decodeShape reads packed dimensions.
func (m *message) decodeShape(in *input, b []byte) error {
	count := countVarints(b)
	each := 8
	if in.shape != nil {
		each *= 2 // append doubles
	}
	if err := m.grow(each * count); err != nil {
		return err
	}
	if in.shape == nil {
		in.shape = make([]int64, 0, count) // bound: weighed
	}
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return errUnparsable
		}
		in.shape = append(in.shape, int64(v)) // bound: weighed
		b = b[n:]
	}
	return nil
}

func (m *message) decodeOutput(b []byte) error {
	if err := m.grow(outputWeight); err != nil {
		return err
	}
	var out output
	err := eachField(b, func(f field) (err error) {
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			out.name, err = m.name("the name of a tensor", f.data)
		case f.num == 2 && f.typ == protowire.BytesType:
			out.params, err = m.decodeParam(out.params, f.data)
		}
		return err
	})
	m.outputs = append(m.outputs, out) // bound: weighed
	return err
}

// decodeParam reads an entry of a parameter map. Missing fields are empty.
func (m *message) decodeParam(to []param, b []byte) ([]param, error) {
	if err := m.grow(parameterWeight); err != nil {
		return to, err
	}
	// The limit applies to names and values. The rest of an entry is small.
	m.given += int64(len(b))
	if err := check("the list of all parameters", m.given, m.charge.Limits().Parameters, "--client-max-parameters-size"); err != nil {
		return to, err
	}
	var p param
	err := eachField(b, func(f field) (err error) {
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			p.name, err = m.name("the name of a parameter", f.data)
		case f.num == 2 && f.typ == protowire.BytesType:
			err = m.decodeValue(&p.value, f.data)
		}
		return err
	})
	return append(to, p), err // bound: weighed
}

// decodeValue merges an InferParameter into v. The last field that is set counts.
func (m *message) decodeValue(v *value, b []byte) error {
	return eachField(b, func(f field) error {
		switch {
		case f.typ == protowire.VarintType && (f.num == boolParam || f.num == int64Param || f.num == uint64Param),
			f.typ == protowire.Fixed64Type && f.num == doubleParam:
			*v = value{kind: f.num, bits: f.bits}
		case f.typ == protowire.BytesType && f.num == stringParam:
			text, err := m.text(f.data)
			if err != nil {
				return err
			}
			*v = value{kind: f.num, string: text}
		}
		return nil
	})
}

// text returns a string field, which must be UTF-8.
func (m *message) text(b []byte) (string, error) {
	if !utf8.Valid(b) {
		return "", errUnparsable
	}
	if err := m.take(len(b)); err != nil {
		return "", err
	}
	return string(b), nil // bound: charged
}

// name returns a string field that is a name.
func (m *message) name(what string, b []byte) (string, error) {
	if err := check(what, int64(len(b)), budget.MaxName, ""); err != nil {
		return "", err
	}
	return m.text(b)
}

// longestType exceeds the length of every data type's name.
const longestType = 16

// dataTypeOf is ParseDataType of a string field, faster for the usual types.
func dataTypeOf(b []byte) (infer.DataType, error) {
	switch string(b) {
	case "FP32":
		return infer.FP32, nil
	case "INT64":
		return infer.Int64, nil
	case "INT32":
		return infer.Int32, nil
	case "BYTES":
		return infer.Bytes, nil
	case "UINT8":
		return infer.Uint8, nil
	}
	if !utf8.Valid(b) {
		return infer.Invalid, errUnparsable
	}
	return infer.ParseDataType(string(b[:min(len(b), longestType)])), nil
}
