package skeleton

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
)

// tensor is an input or output of a model, given by a flag as NAME:TYPE:DIMS.
type tensor struct {
	Name string
	Type infer.DataType
	Dims []int64
	Var  string // its variable in model.py
	From *tensor
}

// tensors is a flag that may be repeated.
type tensors []tensor

// String returns the default for package flag.
func (t *tensors) String() string { return "" }

// Set adds the value of one flag.
func (t *tensors) Set(text string) error {
	parsed, err := parseTensor(text)
	if err != nil {
		return err
	}
	for _, other := range *t {
		if other.Name == parsed.Name {
			return fmt.Errorf("the name %q appears twice", parsed.Name)
		}
	}
	*t = append(*t, parsed)
	return nil
}

var goodTensorName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func parseTensor(text string) (tensor, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return tensor{}, fmt.Errorf("got %d parts, want NAME:TYPE:DIMS, such as IMAGE:FP32:3,-1,-1", len(parts))
	}
	t := tensor{Name: parts[0]}
	if !goodTensorName.MatchString(t.Name) {
		return tensor{}, fmt.Errorf("the name %q: want letters, digits, underscores and dots", t.Name)
	}
	kind := strings.TrimPrefix(strings.ToUpper(parts[1]), "TYPE_")
	if kind == "STRING" {
		kind = infer.Bytes.String()
	}
	if t.Type = infer.ParseDataType(kind); numpyTypes[t.Type] == "" {
		return tensor{}, fmt.Errorf("the type %q: want one of %s", parts[1], strings.Join(typeNames(), ", "))
	}
	for dim := range strings.SplitSeq(parts[2], ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(dim), 10, 64)
		if err != nil || n < -1 || n == 0 {
			return tensor{}, fmt.Errorf("the dimension %q: want a number above 0, or -1 for any size", dim)
		}
		t.Dims = append(t.Dims, n)
	}
	return t, nil
}

// numpyTypes are the numpy types of tensors in model.py. numpy has no BF16.
var numpyTypes = map[infer.DataType]string{
	infer.Bool: "bool_", infer.Uint8: "uint8", infer.Uint16: "uint16", infer.Uint32: "uint32", infer.Uint64: "uint64",
	infer.Int8: "int8", infer.Int16: "int16", infer.Int32: "int32", infer.Int64: "int64",
	infer.FP16: "float16", infer.FP32: "float32", infer.FP64: "float64", infer.Bytes: "object_",
}

// torchTypes are the types that PyTorch can compute with.
var torchTypes = map[infer.DataType]string{
	infer.Bool: "bool", infer.Uint8: "uint8", infer.Int8: "int8", infer.Int16: "int16", infer.Int32: "int32", infer.Int64: "int64",
	infer.FP16: "float16", infer.FP32: "float32", infer.FP64: "float64",
}

func typeNames() (names []string) {
	for d := infer.Bool; d.Valid(); d++ {
		if numpyTypes[d] != "" {
			names = append(names, d.String())
		}
	}
	return names
}

// like reports whether two tensors can have the same array.
func (t *tensor) like(other *tensor) bool {
	return t.Type == other.Type && slices.Equal(t.Dims, other.Dims)
}

// DimsText returns the dims as in config.pbtxt.
func (t *tensor) DimsText() string { return numbers(t.Dims) }

// ConfigType returns the type as in config.pbtxt.
func (t *tensor) ConfigType() string { return t.Type.ConfigName() }

// Numpy returns the numpy type.
func (t *tensor) Numpy() string { return "np." + numpyTypes[t.Type] }

// Torch returns the PyTorch type.
func (t *tensor) Torch() string { return "torch." + torchTypes[t.Type] }

// Shape returns a shape in Python: first, unless it is "", and the dims, with 1 for variable ones.
func (t *tensor) Shape(first string) string { return t.shape(first, 1) }

// Sample returns the shape of the arrays in tests and clients.
func (t *tensor) Sample(batching bool) string {
	if batching {
		return t.shape("1", 3)
	}
	return t.shape("", 3)
}

// Made returns the shape of the output for those arrays.
func (t *tensor) Made(batching bool) string {
	switch {
	case t.From != nil:
		return t.Sample(batching)
	case batching:
		return t.shape("1", 1)
	}
	return t.shape("", 1)
}

func (t *tensor) shape(first string, free int64) string {
	dims := slices.Clone(t.Dims)
	for i, n := range dims {
		if n < 0 {
			dims[i] = free
		}
	}
	text := numbers(dims)
	if first != "" {
		text = first + ", " + text
	}
	if !strings.Contains(text, ",") {
		text += ","
	}
	return "(" + text + ")"
}

// Value returns the values for the arrays of a test.
func (t *tensor) Value() string {
	switch t.Type {
	case infer.Bytes:
		return `b"text"`
	case infer.Bool:
		return "True"
	}
	return "1"
}

// Zero returns the value of an output that depends on no input.
func (t *tensor) Zero() string {
	if t.Type == infer.Bytes {
		return `b""`
	}
	return "0"
}

func numbers(dims []int64) string {
	texts := make([]string, len(dims))
	for i, n := range dims {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ", ")
}
