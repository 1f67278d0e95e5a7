package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/server/recording"
)

// protocolParameters are response parameters that front ends add.
var protocolParameters = []string{"triton_final_response", "sequence_id", "sequence_start", "sequence_end", "binary_data_size"}

// comparison says how to compare answers.
type comparison struct {
	tolerance float64
	ignored   ignored
	// namesAlone ignores shapes and elements, because the inputs differ from the recorded ones.
	namesAlone bool
}

// mostDifferences is how many bytes of differences are kept for each record. They stay in memory
// until the replay is over.
const mostDifferences = 64 << 10

// shorten keeps the first of the differences, and says how many others there are.
//
// bound: mostDifferences
func shorten(differences []string) []string {
	left := mostDifferences
	for i, text := range differences {
		if left -= len(text) + 16; left >= 0 {
			continue
		}
		kept := append(differences[:i:i], infer.Cut(text, infer.MaxEcho)) // not in the long list
		if more := len(differences) - len(kept); more > 0 {
			kept = append(kept, fmt.Sprintf("and %d more differences", more))
		}
		return kept
	}
	return differences
}

// compare describes the differences between responses and the recorded ones, in sentences.
//
// bound: the record and its answers, of at most mostAnswered bytes
func (c *comparison) compare(was, is []recording.Message) (differences []string) {
	for i := range min(len(was), len(is)) {
		prefix := ""
		if len(was) > 1 {
			prefix = fmt.Sprintf("response %d: ", i+1)
		}
		for _, text := range c.message(&was[i], &is[i]) {
			differences = append(differences, prefix+text)
		}
	}
	switch {
	case len(was) == len(is):
	case len(is) == 0:
		differences = append(differences, "no response, was "+show(&was[0]))
	default:
		differences = append(differences, fmt.Sprintf("%d responses, was %d", len(is), len(was)))
	}
	return shorten(differences)
}

// show describes a message in a few words.
func show(m *recording.Message) string {
	if m.Err != nil {
		return fmt.Sprintf("the error %q", m.Err.Message)
	}
	return "a response"
}

// bound: the record and its answers
func (c *comparison) message(was, is *recording.Message) (differences []string) {
	add := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	switch {
	case was.Err != nil && is.Err != nil:
		if was.Err.Message != is.Err.Message {
			add("the error is %q, was %q", is.Err.Message, was.Err.Message)
		}
		return differences
	case was.Err != nil || is.Err != nil:
		add("it is %s, was %s", show(is), show(was))
		return differences
	}
	for i := range was.Tensors {
		t := &was.Tensors[i]
		if c.ignored.outputs[t.Name] {
			continue
		}
		at := slices.IndexFunc(is.Tensors, func(o recording.Tensor) bool { return o.Name == t.Name })
		if at < 0 {
			add("output %s is missing", t.Name)
			continue
		}
		if text := c.tensor(t, &is.Tensors[at]); text != "" {
			add("output %s: %s", t.Name, text)
		}
	}
	for i := range is.Tensors {
		name := is.Tensors[i].Name
		if !c.ignored.outputs[name] && !slices.ContainsFunc(was.Tensors, func(o recording.Tensor) bool { return o.Name == name }) {
			add("output %s is new", name)
		}
	}
	return append(differences, c.parameters(was, is)...)
}

// bound: the record and its answers
func (c *comparison) parameters(was, is *recording.Message) (differences []string) {
	skip := func(name string) bool {
		return c.ignored.parameters[name] || slices.Contains(protocolParameters, name) || slices.Contains(was.Redacted, name)
	}
	values := func(m *recording.Message) map[string]string {
		all := make(map[string]string)
		for _, p := range m.Parameters {
			if !skip(p.Name) {
				all[p.Name] = valueOf(p)
			}
		}
		return all
	}
	before, now := values(was), values(is)
	for _, p := range was.Parameters {
		switch value, there := now[p.Name]; {
		case skip(p.Name):
		case !there:
			differences = append(differences, fmt.Sprintf("parameter %s is missing, was %s", p.Name, before[p.Name]))
		case value != before[p.Name]:
			differences = append(differences, fmt.Sprintf("parameter %s is %s, was %s", p.Name, value, before[p.Name]))
		}
	}
	for _, p := range is.Parameters {
		if _, there := before[p.Name]; !there && !skip(p.Name) {
			differences = append(differences, fmt.Sprintf("parameter %s is new: %s", p.Name, valueOf(p)))
		}
	}
	return differences
}

// valueOf formats the value of a parameter. Whole numbers look the same in all types, because JSON
// does not distinguish them.
func valueOf(p infer.Parameter) string {
	switch p.Kind {
	case infer.StringParameter:
		return strconv.Quote(p.String) // bound: the record and its answers
	case infer.IntParameter:
		return strconv.FormatInt(p.Int, 10)
	case infer.BoolParameter:
		return strconv.FormatBool(p.Bool)
	}
	return strconv.FormatFloat(p.Double, 'g', -1, 64)
}

func (c *comparison) tensor(was, is *recording.Tensor) string {
	if was.DataType != is.DataType {
		return fmt.Sprintf("the type is %s, was %s", is.DataType, was.DataType)
	}
	if c.namesAlone {
		return ""
	}
	if !slices.Equal(was.Shape, is.Shape) {
		return fmt.Sprintf("the shape is %s, was %s", infer.ShapeString(is.Shape), infer.ShapeString(was.Shape))
	}
	if was.Redacted || bytes.Equal(was.Data, is.Data) {
		return ""
	}
	n := elements(&was.Tensor)
	if now := elements(&is.Tensor); now != n {
		return fmt.Sprintf("it has %d elements, was %d", now, n)
	}
	text, count := "", 0
	before, now := was.Data, is.Data
	for i := range n {
		var a, b []byte
		a, before = next(was.DataType, before)
		b, now = next(was.DataType, now)
		if !c.alike(was.DataType, a, b) {
			if count++; count == 1 {
				text = fmt.Sprintf("element %s is %s, was %s", index(i, was.Shape), value(was.DataType, b), value(was.DataType, a))
			}
		}
	}
	if count > 0 && n > 1 {
		text += fmt.Sprintf("; %d of %d elements differ", count, n)
	}
	return text
}

// elements counts the elements of a tensor.
func elements(t *infer.Tensor) (n int) {
	for data := t.Data; len(data) > 0; n++ {
		_, data = next(t.DataType, data)
	}
	return n
}

// next splits the first element off the bytes of a tensor. The last may be incomplete.
func next(d infer.DataType, data []byte) (element, rest []byte) {
	n := d.Size()
	switch {
	case d == infer.Bytes && len(data) < 4:
		return data, nil
	case d == infer.Bytes:
		n, data = int(binary.LittleEndian.Uint32(data)), data[4:]
	case n == 0: // an unknown type
		return nil, nil
	}
	n = min(n, len(data))
	return data[:n], data[n:]
}

// alike compares two elements.
func (c *comparison) alike(d infer.DataType, was, is []byte) bool {
	if bytes.Equal(was, is) {
		return true
	}
	a, isNumber := number(d, was)
	if !isNumber || len(is) != len(was) {
		return false
	}
	b, _ := number(d, is)
	if math.IsNaN(a) && math.IsNaN(b) || a == b {
		return true // the bits of NaN, and the sign of 0, do not matter
	}
	if math.IsInf(a, 0) || math.IsInf(b, 0) {
		return false // a tolerance relative to infinity would accept anything
	}
	return math.Abs(a-b) <= c.tolerance*math.Max(1, math.Abs(a))
}

// number returns the value of a floating-point element.
func number(d infer.DataType, b []byte) (v float64, ok bool) {
	if !d.IsFloat() || len(b) != d.Size() {
		return 0, false
	}
	return d.Float(b), true
}

// maxShown limits the bytes shown of a text.
const maxShown = 60

// value formats an element.
func value(d infer.DataType, b []byte) string {
	if v, is := number(d, b); is {
		size := 32 // enough digits for a half
		if d == infer.FP64 {
			size = 64
		}
		return strconv.FormatFloat(v, 'g', -1, size)
	}
	if d.Valid() && d != infer.Bytes && len(b) == d.Size() { // an incomplete element is shown as text
		return string(d.AppendNumber(nil, b)) // bound: one number
	}
	if len(b) > maxShown {
		return fmt.Sprintf("%q… (%d bytes)", b[:maxShown], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// index converts the position of an element to one index per dimension.
func index(at int, shape []int64) string {
	index := make([]int64, len(shape)) // bound: the record
	rest := int64(at)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 0 {
			index[i], rest = rest%shape[i], rest/shape[i]
		}
	}
	return infer.ShapeString(index)
}
