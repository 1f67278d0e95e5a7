package signature

import (
	"context"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// tensor is the config of one input or output, in the form for checking requests.
type tensor struct {
	name     string
	dataType infer.DataType
	dims     []int64
	reshape  []int64 // may be nil
	reshaped bool
	optional bool
}

// Model is the signature of one version of a model. It is immutable.
type Model struct {
	model     string
	inputs    []tensor // in the config's order
	outputs   []tensor
	byInput   map[string]*tensor
	byOutput  map[string]*tensor
	required  int // inputs that are not optional
	maxBatch  int64
	reshapes  bool // an output has a reshape
	anyOption bool
	// correlation is the control tensor for correlation ids; may be nil.
	correlation *correlation
}

// New makes the signature of a model from its final config.
//
// bound: the config
func New(model string, c *kserve.ModelConfig) *Model {
	s := &Model{
		model: model, maxBatch: int64(c.GetMaxBatchSize()),
		byInput: make(map[string]*tensor), byOutput: make(map[string]*tensor),
	}
	for _, in := range c.GetInput() {
		s.inputs = append(s.inputs, tensor{
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
		s.outputs = append(s.outputs, tensor{
			name: out.GetName(), dataType: infer.DataType(out.GetDataType()), dims: out.GetDims(),
			reshape: out.GetReshape().GetShape(), reshaped: out.GetReshape() != nil,
		})
		s.reshapes = s.reshapes || out.GetReshape() != nil
	}
	s.correlation = newCorrelation(c.GetSequenceBatching())
	// If the config repeats a name, the first tensor counts.
	for i := len(s.inputs) - 1; i >= 0; i-- {
		s.byInput[s.inputs[i].name] = &s.inputs[i]
	}
	for i := len(s.outputs) - 1; i >= 0; i-- {
		s.byOutput[s.outputs[i].name] = &s.outputs[i]
	}
	return s
}

// Batches reports whether tensors have an implicit batch dimension.
func (s *Model) Batches() bool { return s.maxBatch > 0 }

// Declares reports whether the config has an input of that name.
func (s *Model) Declares(input string) bool { return s.byInput[input] != nil }

// Dims returns the config's dims of an input, nil if there is no such input.
func (s *Model) Dims(input string) []int64 {
	if in := s.byInput[input]; in != nil {
		return in.dims
	}
	return nil
}

func refuse(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}

// BackendRefusal is a refusal that Triton leaves to its Python backend: the client gets it as a
// response, not as the error of the request.
type BackendRefusal struct{ Err *infer.Error }

func (e *BackendRefusal) Error() string { return e.Err.Message }
func (e *BackendRefusal) Unwrap() error { return e.Err }

// Validate checks the rules for every model and then, in Triton's order, those of this one. It
// completes the request: the input of a raw request gets name, type and shape, the batch size is
// taken from the shapes, and shapes become the model's. BYTES elements in foreign memory are
// copied, until ctx ends.
func (s *Model) Validate(ctx context.Context, r *infer.Request) error {
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
			return refuse("unexpected inference output '%s' for model '%s'", output, s.model)
		}
		for _, earlier := range r.Outputs[:i] {
			if earlier == output {
				return refuse("%soutput '%s' already exists in request", r.LogPrefix(), output)
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
		if err := s.checkInput(ctx, r, &r.Inputs[i], name); err != nil {
			return err
		}
	}
	if s.maxBatch > 0 && r.BatchSize == 0 {
		return s.batchRefused(r) // Triton gives the model one item without a batch dimension
	}
	return s.correlation.check(r, s.model)
}

func (s *Model) batchRefused(r *infer.Request) error {
	return refuse("%sinference request batch-size must be <= %d for '%s'", r.LogPrefix(), s.maxBatch, s.model)
}

// mostListed bounds the names of a request's inputs that an error lists: even empty ones exceed the
// length at which clients' texts are cut.
const mostListed = 2 << 10

// checkNames compares the present inputs with the required ones.
func (s *Model) checkNames(r *infer.Request) error {
	n := len(r.Inputs)
	if n < s.required || n > len(s.inputs) {
		got := make([]string, 0, min(n, mostListed))
		for i := range min(n, mostListed) {
			got = append(got, "'"+r.Inputs[i].Name+"'")
		}
		var missing []string // bound: the config
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
			lack = "[" + strings.Join(missing, ",") + "]" // bound: the config
		}
		return refuse("%s"+expected+" for model '%s'. Got input(s) %s, but missing required input(s) %s. Please provide all required input(s).",
			// bound: two or three counts
			append(append([]any{r.LogPrefix()}, counts...), s.model, "["+strings.Join(got, ",")+"]", lack)...)
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		for j := range i {
			if r.Inputs[j].Name == in.Name {
				return refuse("%sinput '%s' already exists in request", r.LogPrefix(), in.Name)
			}
		}
		if s.byInput[in.Name] == nil {
			return refuse("unexpected inference input '%s' for model '%s'", in.Name, s.model)
		}
	}
	return nil
}

// batchSize takes the batch size from the first dimensions.
func (s *Model) batchSize(r *infer.Request) error {
	r.BatchSize = 0
	if s.maxBatch == 0 {
		return nil
	}
	if len(r.Inputs) == 0 {
		return &BackendRefusal{infer.Errorf(infer.InvalidArg, "%sout of bounds index 0: request has 0 inputs", r.LogPrefix())}
	}
	for i := range r.Inputs {
		in := &r.Inputs[i]
		if len(in.Shape) == 0 {
			return refuse("%sinput '%s' has no shape but model requires batch dimension for '%s'", r.LogPrefix(), in.Name, s.model)
		}
		if i == 0 {
			r.BatchSize = in.Shape[0]
		} else if in.Shape[0] != r.BatchSize {
			return refuse("%sinput '%s' batch size does not match other inputs for '%s'", r.LogPrefix(), in.Name, s.model)
		}
	}
	if r.BatchSize > s.maxBatch {
		return s.batchRefused(r)
	}
	return nil
}
