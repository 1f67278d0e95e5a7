package form

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Field is the form field of one input of a model.
type Field struct {
	Name     string
	Type     infer.DataType
	Dims     []int64 // as in requests, with the batch dimension first
	Optional bool
	Shape    string // as typed, initially a proposal
	Values   string // likewise
	File     []byte // nil: none was chosen
}

// Fields returns the fields of a model's inputs with a proposal for each.
//
// bound: the inputs of the config
func Fields(config *kserve.ModelConfig) []Field {
	list := make([]Field, 0, len(config.GetInput()))
	for _, in := range config.GetInput() {
		f := Field{Name: in.GetName(), Type: infer.DataType(in.GetDataType()), Dims: slices.Clone(in.GetDims()), Optional: in.GetOptional()}
		proposed := slices.Clone(f.Dims)
		open := true // one dimension may be derived from the values
		for i := len(proposed) - 1; i >= 0; i-- {
			if proposed[i] >= 0 {
				continue
			}
			if open && f.Type != infer.Bytes {
				open = false
				continue
			}
			proposed[i] = 1
		}
		if config.GetMaxBatchSize() > 0 && !in.GetIsShapeTensor() {
			f.Dims, proposed = slices.Insert(f.Dims, 0, -1), slices.Insert(proposed, 0, 1)
		}
		f.Shape = shapeText(proposed)
		if !f.Optional {
			f.Values = proposal(f.Type)
		}
		list = append(list, f)
	}
	return list
}

// proposal returns a value that fills a tensor.
func proposal(d infer.DataType) string {
	switch {
	case d == infer.Bool:
		return "true"
	case d == infer.Bytes:
		return "hello"
	case d.IsFloat():
		return "1.0"
	default:
		return "1"
	}
}

// DimsText formats the configured shape.
func (f *Field) DimsText() string { return infer.ShapeString(f.Dims) }

// IsBytes reports whether the values are texts.
func (f *Field) IsBytes() bool { return f.Type == infer.Bytes }

// Empty reports whether the field is empty.
func (f *Field) Empty() bool { return f.File == nil && strings.TrimSpace(f.Values) == "" }

// bound: maxDims
func shapeText(shape []int64) string {
	texts := make([]string, len(shape))
	for i, d := range shape {
		texts[i] = strconv.FormatInt(d, 10)
	}
	return strings.Join(texts, ", ")
}

// separated splits a text at spaces, commas, semicolons and brackets.
func separated(text string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(text, func(r rune) bool {
		return r <= ' ' || r == ',' || r == ';' || r == '[' || r == ']' || r == '(' || r == ')' || r == '\u00a0'
	})
}

// parseShape parses a shape; open is the index of the one -1 in it, or -1.
func (f *Field) parseShape() (shape []int64, open int, err error) {
	open = -1
	for word := range separated(f.Shape) {
		d, err := strconv.ParseInt(word, 10, 64)
		switch {
		case err != nil || d < -1:
			return nil, 0, f.refuse("dimension %.20q of the shape: want a whole number, or -1 once", word)
		case d == -1 && open >= 0:
			return nil, 0, f.refuse("the shape has -1 more than once; only one dimension can be derived from the values")
		case d == -1:
			open = len(shape)
		}
		if shape = append(shape, d); len(shape) > maxDims { // bound: maxDims
			return nil, 0, f.refuse("the shape has more than %d dimensions", maxDims)
		}
	}
	return shape, open, nil
}

const maxDims = 32

// refuse returns an error about this input.
func (f *Field) refuse(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArg, "input '%s': "+format, append([]any{f.Name}, args...)...) // bound: the arguments of a format
}
