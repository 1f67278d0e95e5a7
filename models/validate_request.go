package models

import (
	"math"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// tensorSpec is what the config says of one input or output, in the form that
// checking requests needs.
type tensorSpec struct {
	name     string
	dataType infer.DataType
	dims     []int64
	reshape  []int64 // nil if there is none
	reshaped bool
	optional bool
}

// requestSpec checks requests against one version's config. It does not change.
type requestSpec struct {
	model     string
	inputs    []tensorSpec // in the config's order
	outputs   []tensorSpec
	byInput   map[string]*tensorSpec
	byOutput  map[string]*tensorSpec
	required  int // inputs that are not optional
	maxBatch  int64
	reshapes  bool // an output has a reshape
	anyOption bool
	// correlation is the control tensor for correlation ids, nil if there is none.
	correlation *correlationSpec
}

// newRequestSpec makes the spec of a model's final config.
func newRequestSpec(model string, c *kserve.ModelConfig) *requestSpec {
	s := &requestSpec{
		model: model, maxBatch: int64(c.GetMaxBatchSize()),
		byInput: make(map[string]*tensorSpec), byOutput: make(map[string]*tensorSpec),
	}
	for _, in := range c.GetInput() {
		s.inputs = append(s.inputs, tensorSpec{
			name: in.GetName(), dataType: infer.DataType(in.GetDataType()), dims: in.GetDims(),
			reshape: in.GetReshape().GetShape(), reshaped: in.GetReshape() != nil, optional: in.GetOptional(),
		})
		if in.GetOptional() {
			s.anyOption = true
		} else {
			s.required++
		}
	}
	for _, out := range c.GetOutput() {
		s.outputs = append(s.outputs, tensorSpec{
			name: out.GetName(), dataType: infer.DataType(out.GetDataType()), dims: out.GetDims(),
			reshape: out.GetReshape().GetShape(), reshaped: out.GetReshape() != nil,
		})
		s.reshapes = s.reshapes || out.GetReshape() != nil
	}
	s.correlation = newCorrelationSpec(c.GetSequenceBatching())
	// Of names that the config repeats the first counts.
	for i := len(s.inputs) - 1; i >= 0; i-- {
		s.byInput[s.inputs[i].name] = &s.inputs[i]
	}
	for i := len(s.outputs) - 1; i >= 0; i-- {
		s.byOutput[s.outputs[i].name] = &s.outputs[i]
	}
	return s
}

// batches reports whether tensors have a batch dimension that the config's dims do
// not name.
func (s *requestSpec) batches() bool { return s.maxBatch > 0 }

// declares reports whether the config has an input of that name.
func (s *requestSpec) declares(input string) bool { return s.byInput[input] != nil }

// dims are the config's of an input, nil if it has none of that name.
func (s *requestSpec) dims(input string) []int64 {
	if in := s.byInput[input]; in != nil {
		return in.dims
	}
	return nil
}

// backendRefusal is a refusal that Triton leaves to its Python backend: the
// client gets it as the response, not as the error of the request.
type backendRefusal struct{ err *infer.Error }

func (e *backendRefusal) Error() string { return e.err.Message }
func (e *backendRefusal) Unwrap() error { return e.err }

// validate checks what every model can be told, and then, in Triton's order, what
// this one wants. It completes the request: the input of a
// raw request gets name, type and shape, the batch size is taken from the
// shapes, and shapes become those that the model sees.
func (s *requestSpec) validate(r *infer.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	name := ""
	if r.Raw {
		if err := s.deduce(r); err != nil {
			return err
		}
		name = "raw_input"
	}
	for i, output := range r.Outputs {
		if s.byOutput[output] == nil {
			return invalid("unexpected inference output '%s' for model '%s'", output, s.model)
		}
		for _, earlier := range r.Outputs[:i] {
			if earlier == output {
				return invalid("%soutput '%s' already exists in request", r.LogPrefix(), output)
			}
		}
	}
	if err := s.checkNames(r); err != nil {
		return err
	}
	if err := s.batchSize(r); err != nil {
		return err
	}
	for i := range r.Inputs {
		if err := s.checkInput(r, &r.Inputs[i], name); err != nil {
			return err
		}
	}
	if s.maxBatch > 0 && r.BatchSize == 0 {
		return s.batchRefused(r) // Triton gives the model one item without a batch dimension
	}
	return s.correlation.check(r, s.model)
}

func (s *requestSpec) batchRefused(r *infer.Request) error {
	return invalid("%sinference request batch-size must be <= %d for '%s'", r.LogPrefix(), s.maxBatch, s.model)
}

// checkNames compares the inputs that are there with those that must be.
func (s *requestSpec) checkNames(r *infer.Request) error {
	n := len(r.Inputs)
	if n < s.required || n > len(s.inputs) {
		got := make([]string, 0, n)
		for i := range r.Inputs {
			got = append(got, "'"+r.Inputs[i].Name+"'")
		}
		var missing []string
		for i := range s.inputs {
			if in := &s.inputs[i]; !in.optional && r.Input(in.name) == nil {
				missing = append(missing, "'"+in.name+"'")
			}
		}
		expected := "expected %d inputs but got %d inputs"
		counts := []any{len(s.inputs), n}
		if s.anyOption {
			expected = "expected number of inputs between %d and %d but got %d inputs"
			counts = []any{s.required, len(s.inputs), n}
		}
		// Nothing missing prints a lone bracket: clients have seen it so.
		lack := "]"
		if len(missing) > 0 {
			lack = "[" + strings.Join(missing, ",") + "]"
		}
		return invalid("%s"+expected+" for model '%s'. Got input(s) %s, but missing required input(s) %s. Please provide all required input(s).",
			append(append([]any{r.LogPrefix()}, counts...), s.model, "["+strings.Join(got, ",")+"]", lack)...)
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		for j := range i {
			if r.Inputs[j].Name == in.Name {
				return invalid("%sinput '%s' already exists in request", r.LogPrefix(), in.Name)
			}
		}
		if s.byInput[in.Name] == nil {
			return invalid("unexpected inference input '%s' for model '%s'", in.Name, s.model)
		}
	}
	return nil
}

// batchSize takes the batch size from the first dimensions.
func (s *requestSpec) batchSize(r *infer.Request) error {
	r.BatchSize = 0
	if s.maxBatch == 0 {
		return nil
	}
	if len(r.Inputs) == 0 {
		return &backendRefusal{infer.Errorf(infer.InvalidArg, "%sout of bounds index 0: request has 0 inputs", r.LogPrefix())}
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		if len(in.Shape) == 0 {
			return invalid("%sinput '%s' has no shape but model requires batch dimension for '%s'", r.LogPrefix(), in.Name, s.model)
		}
		if i == 0 {
			r.BatchSize = in.Shape[0]
		} else if in.Shape[0] != r.BatchSize {
			return invalid("%sinput '%s' batch size does not match other inputs for '%s'", r.LogPrefix(), in.Name, s.model)
		}
	}
	if r.BatchSize > s.maxBatch {
		return s.batchRefused(r)
	}
	return nil
}

const batchNote = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."

// checkInput checks one input's type, shape and size, and reshapes it. shown is
// the name for texts about the size, if it is not the input's own.
func (s *requestSpec) checkInput(r *infer.Request, in *infer.Tensor, shown string) error {
	spec := s.byInput[in.Name]
	if shown == "" {
		shown = in.Name
	}
	if in.DataType != spec.dataType {
		return invalid("%sinference input '%s' data-type is '%s', but model '%s' expects '%s'", r.LogPrefix(), in.Name, in.DataType, s.model, spec.dataType)
	}
	item := in.Shape
	if s.maxBatch > 0 {
		item = in.Shape[1:]
	}
	unspecified := func() error {
		return invalid("%sAll input dimensions should be specified for input '%s' for model '%s', got %s", r.LogPrefix(), in.Name, s.model, infer.ShapeString(in.Shape))
	}
	if len(item) == len(spec.dims) && slices.Contains(item, -1) {
		return unspecified()
	}
	if !fits(item, spec.dims) {
		expected, note := spec.dims, ""
		if s.maxBatch > 0 {
			expected, note = append([]int64{-1}, spec.dims...), batchNote
		}
		return invalid("%sunexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s", r.LogPrefix(), in.Name, s.model, infer.ShapeString(expected), infer.ShapeString(in.Shape), note)
	}
	if r.BatchSize == -1 { // of models without a batch dimension it is 0
		return unspecified()
	}
	if err := s.checkSize(r, in, item, shown); err != nil {
		return err
	}
	if spec.reshaped {
		in.Shape = reshape(in.Shape, spec.dims, spec.reshape, s.maxBatch > 0)
	}
	return nil
}

// checkSize compares the bytes with what type and shape ask for.
func (s *requestSpec) checkSize(r *infer.Request, in *infer.Tensor, item []int64, shown string) error {
	for _, d := range in.Shape {
		if d < 0 {
			return invalid("%stensor '%s' contains an invalid dimension %s", r.LogPrefix(), shown, infer.ShapeString(in.Shape))
		}
	}
	elements, ok := infer.Elements(item)
	// A batch of 0 has the bytes of one item if its size is to be complained of
	// with the text about batches, and not with that about bytes.
	if ok && s.maxBatch > 0 && r.BatchSize > 1 {
		if elements > math.MaxInt64/r.BatchSize {
			ok = false
		}
		elements *= r.BatchSize
	}
	if in.DataType == infer.Bytes {
		if !ok {
			return invalid("%selement count for tensor '%s' exceeds maximum size of 9223372036854775807", r.LogPrefix(), shown)
		}
		return s.checkStrings(r, in, elements)
	}
	size := int64(in.DataType.Size())
	if !ok || elements > math.MaxInt64/size {
		return invalid("%sbyte size for tensor '%s' exceeds maximum size of 9223372036854775807", r.LogPrefix(), shown)
	}
	if int64(len(in.Data)) != elements*size {
		return invalid("%sinput byte size mismatch for input '%s' for model '%s'. Expected %d, got %d", r.LogPrefix(), shown, s.model, elements*size, len(in.Data))
	}
	return nil
}

// checkStrings walks the elements of a BYTES input.
func (s *requestSpec) checkStrings(r *infer.Request, in *infer.Tensor, want int64) error {
	scan := infer.ScanBytes(in.Data, int(min(want+1, math.MaxInt)))
	count := int64(scan.Count)
	switch {
	case count > want:
		return invalid("%sunexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", r.LogPrefix(), want+1, in.Name, s.model, want)
	case scan.Rest == 0 && count == want:
		return nil
	case scan.Rest >= 4 && count == want:
		// An element too many, cut off.
		return invalid("%sunexpected number of string elements %d for inference input '%s' for model '%s', expecting %d", r.LogPrefix(), want+1, in.Name, s.model, want)
	case scan.Rest >= 4 && count+1 < want: // the one that is cut off counts
		return s.tooFewStrings(r, in, want, count+1)
	case scan.Rest >= 4:
		return &backendRefusal{infer.Errorf(infer.InvalidArg, "incomplete string data for inference input '%s', expecting string of length %d but only %d bytes available",
			in.Name, scan.Want, scan.Rest-4)}
	case scan.Rest > 0:
		return invalid("%sincomplete string length indicator for inference input '%s' for model '%s', expecting 4 bytes but only %d bytes available. Please make sure the string length indicator is in one buffer.", r.LogPrefix(), in.Name, s.model, scan.Rest)
	}
	return s.tooFewStrings(r, in, want, count)
}

func (s *requestSpec) tooFewStrings(r *infer.Request, in *infer.Tensor, want, count int64) error {
	return invalid("%sexpected %d string elements for inference input '%s' for model '%s', got %d", r.LogPrefix(), want, in.Name, s.model, count)
}

// fits reports whether a shape matches dims, where -1 matches anything.
func fits(shape, dims []int64) bool {
	if len(shape) != len(dims) {
		return false
	}
	for i, d := range dims {
		if d != -1 && shape[i] != d {
			return false
		}
	}
	return true
}

// reshape turns a shape that matches from into one that matches to: what is
// variable there is filled, in order, with what was variable here. A batch
// dimension stays in front; a scalar, which an output may be, has none.
func reshape(shape, from, to []int64, batch bool) []int64 {
	out := make([]int64, 0, len(to)+1)
	if batch && len(shape) > 0 {
		out = append(out, shape[0])
		shape = shape[1:]
	}
	next := 0
	for _, d := range to {
		if d == -1 {
			for next < len(from) && from[next] != -1 {
				next++
			}
			if next < len(shape) {
				d = shape[next]
				next++
			}
		}
		out = append(out, d)
	}
	return out
}

// answer turns a response of the model into the client's: outputs get back the
// shapes that the config's dims announce.
func (s *requestSpec) answer(r *infer.Response) {
	if !s.reshapes {
		return
	}
	for i := range r.Outputs {
		spec := s.byOutput[r.Outputs[i].Name]
		if spec == nil || !spec.reshaped {
			continue
		}
		shape, batch := r.Outputs[i].Shape, s.maxBatch > 0
		item := shape
		if batch && len(shape) > 0 {
			item = shape[1:]
		}
		if fits(item, spec.reshape) {
			r.Outputs[i].Shape = reshape(shape, spec.reshape, spec.dims, batch)
		}
	}
}

// deduce gives the single input of a raw request its name, type and shape.
func (s *requestSpec) deduce(r *infer.Request) error {
	if len(s.inputs) != 1 {
		return invalid("%sRaw request must only have 1 input (found 1) to be deduced but got %d inputs in '%s' model configuration", r.LogPrefix(), len(s.inputs), s.model)
	}
	spec, in := &s.inputs[0], &r.Inputs[0]
	in.Name, in.DataType, in.Shape = spec.name, spec.dataType, nil
	if s.maxBatch > 0 {
		in.Shape = append(in.Shape, 1)
	}
	if spec.dataType == infer.Bytes {
		if len(spec.dims) != 1 || spec.dims[0] != 1 {
			return invalid("%sFor BYTE datatype raw input '%s', the model must have input shape [1]", r.LogPrefix(), in.Name)
		}
		// The client sends the text alone.
		n := len(in.Data)
		data := make([]byte, 4, 4+n)
		data[0], data[1], data[2], data[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		in.Data = append(data, in.Data...)
		in.Shape = append(in.Shape, 1)
		return nil
	}
	variable, fixed := -1, int64(spec.dataType.Size())
	for i, d := range spec.dims {
		if d != -1 {
			fixed *= d
			continue
		}
		if variable >= 0 {
			return invalid("%sThe shape of the raw input '%s' can not be deduced because there are more than one variable-sized dimension", r.LogPrefix(), in.Name)
		}
		variable = i
	}
	for i, d := range spec.dims {
		if i == variable {
			d = int64(len(in.Data)) / max(fixed, 1)
		}
		in.Shape = append(in.Shape, d)
	}
	return nil
}
