package bench

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// What an input may be filled with, beside a file.
const (
	random = "random"
	zero   = "zero"
)

// mostBytes bounds a tensor, as a dimension that was mistyped should not take all memory.
const mostBytes = 4 << 30

// tensor is an input of a request.
type tensor struct {
	name     string
	datatype infer.DataType
	shape    []int64
	data     []byte
}

// sample is what one request sends.
type sample []tensor

// makeSamples makes what requests send, at least one.
func makeSamples(o *options, config *kserve.ModelConfig) ([]sample, error) {
	var given []map[string]json.RawMessage
	if o.data != "" {
		var err error
		if given, err = readData(o.data); err != nil {
			return nil, err
		}
	}
	for name := range o.inputs {
		if !hasInput(config, name) {
			return nil, unknownInput("--input", name, config)
		}
	}
	for name := range o.shapes {
		if !hasInput(config, name) {
			return nil, unknownInput("--shape", name, config)
		}
	}
	samples := make([]sample, max(1, len(given)))
	for i := range samples {
		var values map[string]json.RawMessage
		if given != nil {
			values = given[i]
			for name := range values {
				if !hasInput(config, name) {
					return nil, unknownInput(fmt.Sprintf("%s: request %d", o.data, i), name, config)
				}
			}
		}
		for _, input := range config.GetInput() {
			t, err := makeTensor(o, config, input, values[input.GetName()])
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", input.GetName(), err)
			}
			if t != nil {
				samples[i] = append(samples[i], *t)
			}
		}
	}
	return samples, nil
}

func hasInput(config *kserve.ModelConfig, name string) bool {
	return slices.ContainsFunc(config.GetInput(), func(i *kserve.ModelInput) bool { return i.GetName() == name })
}

func unknownInput(where, name string, config *kserve.ModelConfig) error {
	var names []string
	for _, input := range config.GetInput() {
		names = append(names, input.GetName())
	}
	return fmt.Errorf("%s names input %q, model %s has %s", where, name, config.GetName(), strings.Join(names, ", "))
}

// makeTensor makes one input; nil if it is optional and nothing was said about it.
func makeTensor(o *options, config *kserve.ModelConfig, input *kserve.ModelInput, value json.RawMessage) (*tensor, error) {
	name := input.GetName()
	fill, asked := o.inputs[name]
	dims, shaped := o.shapes[name]
	if input.GetOptional() && value == nil && !asked && !shaped {
		return nil, nil
	}
	t := &tensor{name: name, datatype: infer.DataType(input.GetDataType()), shape: input.GetDims()}
	if !t.datatype.Valid() {
		return nil, errors.New("the model's config gives it no type")
	}
	if shaped {
		t.shape = dims
	}
	if value != nil {
		if err := t.read(value); err != nil {
			return nil, err
		}
	}
	if at := slices.Index(t.shape, -1); at >= 0 {
		return nil, fmt.Errorf("dimension %d of %s may have any size, say which by --shape %s:…", at, infer.ShapeString(t.shape), name)
	}
	copies := int64(1)
	if config.GetMaxBatchSize() > 0 {
		copies = o.batch
		t.shape = slices.Concat([]int64{o.batch}, t.shape)
	} else if o.batch > 1 {
		return nil, fmt.Errorf("--batch is %d, and model %s does not batch", o.batch, config.GetName())
	}
	switch {
	case value != nil:
		t.data = slices.Repeat(t.data, int(copies))
	case strings.HasPrefix(fill, "@"):
		data, err := os.ReadFile(fill[1:])
		if err != nil {
			return nil, err
		}
		if t.datatype == infer.Bytes { // the file is one element
			data = appendElement(nil, data)
		}
		t.data = slices.Repeat(data, int(copies))
	default:
		if err := t.fill(fill == zero, o.textLength); err != nil {
			return nil, err
		}
	}
	return t, t.checkSize()
}

// checkSize compares bytes and shape.
func (t *tensor) checkSize() error {
	if t.datatype == infer.Bytes {
		want, ok := infer.Elements(t.shape)
		found := int64(0)
		for rest := t.data; len(rest) >= 4; found++ {
			rest = rest[min(len(rest), 4+int(binary.LittleEndian.Uint32(rest))):]
		}
		if !ok || found != want {
			return fmt.Errorf("it has %d elements, want %d for shape %s", found, want, infer.ShapeString(t.shape))
		}
		return nil
	}
	if want, ok := infer.ByteSize(t.datatype, t.shape); !ok || want != int64(len(t.data)) {
		return fmt.Errorf("it has %d bytes, want %d for shape %s of %s", len(t.data), want, infer.ShapeString(t.shape), t.datatype)
	}
	return nil
}

// fill makes values: random ones are small, so that they fit as indices and do not overflow in sums.
func (t *tensor) fill(zeros bool, textLength int) error {
	n, ok := infer.Elements(t.shape)
	size := int64(max(t.datatype.Size(), 4+textLength))
	if !ok || n > mostBytes/size {
		return fmt.Errorf("shape %s has more than %d bytes", infer.ShapeString(t.shape), int64(mostBytes))
	}
	if t.datatype != infer.Bytes {
		t.data = make([]byte, 0, n*int64(t.datatype.Size()))
		if zeros {
			t.data = t.data[:cap(t.data)]
			return nil
		}
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for range n {
		if t.datatype == infer.Bytes {
			var text []byte
			for range textLength {
				if !zeros {
					text = append(text, letters[rand.IntN(len(letters))])
				}
			}
			t.data = appendElement(t.data, text)
			continue
		}
		if err := t.appendNumber(float64(rand.IntN(128))/t.scale(), 0); err != nil {
			return err
		}
	}
	return nil
}

// scale brings random numbers below 128 into the usual range of a type.
func (t *tensor) scale() float64 {
	switch t.datatype {
	case infer.FP16, infer.FP32, infer.FP64, infer.BF16:
		return 128
	case infer.Bool:
		return 64
	}
	return 1
}

func appendElement(data, element []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(element))), element...)
}

// appendNumber appends an element: v, or for integers of more than 53 bits whole.
func (t *tensor) appendNumber(v float64, whole uint64) error {
	le := binary.LittleEndian
	integer := uint64(int64(v))
	if whole != 0 {
		integer = whole
	}
	switch t.datatype {
	case infer.Bool, infer.Uint8, infer.Int8:
		t.data = append(t.data, byte(integer))
	case infer.Uint16, infer.Int16:
		t.data = le.AppendUint16(t.data, uint16(integer))
	case infer.Uint32, infer.Int32:
		t.data = le.AppendUint32(t.data, uint32(integer))
	case infer.Uint64, infer.Int64:
		t.data = le.AppendUint64(t.data, integer)
	case infer.FP32:
		t.data = le.AppendUint32(t.data, math.Float32bits(float32(v)))
	case infer.FP64:
		t.data = le.AppendUint64(t.data, math.Float64bits(v))
	case infer.BF16:
		t.data = le.AppendUint16(t.data, uint16(math.Float32bits(float32(v))>>16))
	case infer.FP16:
		t.data = le.AppendUint16(t.data, half(float32(v)))
	default:
		return fmt.Errorf("type %s has no numbers", t.datatype)
	}
	return nil
}

// half rounds a number to FP16, towards zero; what is too small is 0, what is too large is infinite.
func half(v float32) uint16 {
	b := math.Float32bits(v)
	sign := uint16(b >> 16 & 0x8000)
	exponent := int(b>>23&0xff) - 127 + 15
	switch {
	case exponent <= 0:
		return sign
	case exponent >= 31:
		return sign | 0x7c00
	}
	return sign | uint16(exponent)<<10 | uint16(b>>13&0x3ff)
}

// readData reads requests in the form of perf_analyzer: {"data": [{NAME: …}, …]}, or lists of them.
func readData(path string) ([]map[string]json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []map[string]json.RawMessage
	for i, entry := range file.Data {
		var several []map[string]json.RawMessage
		if json.Unmarshal(entry, &several) != nil {
			one := make(map[string]json.RawMessage)
			if err := json.Unmarshal(entry, &one); err != nil {
				return nil, fmt.Errorf("%s: entry %d of data: %w", path, i, err)
			}
			several = append(several, one)
		}
		all = append(all, several...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: data has no requests", path)
	}
	return all, nil
}

// read reads a value in the form of perf_analyzer: an array, {"content": …, "shape": […]}, or {"b64": …}.
func (t *tensor) read(value json.RawMessage) error {
	var object struct {
		Content json.RawMessage `json:"content"`
		Shape   []int64         `json:"shape"`
		Base64  *string         `json:"b64"`
	}
	if value[0] == '{' {
		if err := json.Unmarshal(value, &object); err != nil {
			return err
		}
		if object.Shape != nil {
			t.shape = object.Shape
		}
		value = object.Content
	}
	if object.Base64 != nil {
		data, err := base64.StdEncoding.DecodeString(*object.Base64)
		if err != nil {
			return fmt.Errorf("b64: %w", err)
		}
		if t.datatype == infer.Bytes {
			data = appendElement(nil, data)
		}
		t.data = data
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(value)))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("its values: %w", err)
	}
	return t.appendValue(content)
}

// appendValue appends the elements of nested arrays.
func (t *tensor) appendValue(value any) error {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			if err := t.appendValue(element); err != nil {
				return err
			}
		}
		return nil
	case string:
		if t.datatype == infer.Bytes {
			t.data = appendElement(t.data, []byte(v))
			return nil
		}
	case bool:
		if t.datatype == infer.Bool {
			return t.appendNumber(map[bool]float64{true: 1}[v], 0)
		}
	case json.Number:
		if t.datatype == infer.Bytes {
			break
		}
		f, err := v.Float64()
		if err != nil {
			return err
		}
		whole, err := strconv.ParseUint(v.String(), 10, 64)
		if err != nil {
			if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
				whole = uint64(n)
			}
		}
		return t.appendNumber(f, whole)
	}
	return fmt.Errorf("%v is no value of type %s", value, t.datatype)
}
