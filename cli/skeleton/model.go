package skeleton

import (
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/cli/command"
	"github.com/nereid-serving/nereid/infer"
)

// model holds the template values of a model.
type model struct {
	Name            string
	Inputs, Outputs []tensor
	MaxBatchSize    int
	Decoupled       bool
	Torch           bool
}

// pythonWords cannot be names of variables, or have a meaning in model.py.
var pythonWords = strings.Fields(`False None True and as assert async await break class continue def del elif else except finally for from
	global if import in is lambda nonlocal not or pass raise return try while with yield
	abs all any bool bytes dict filter float format hash id input int iter len list map max min next object open range set sorted str sum tuple type zip
	Any Array HERE np torch pb_utils json self args requests request response responses rows error sender shape print`)

func makeModel(i *invocation) error {
	m := model{}
	var inputs, outputs tensors
	directory := i.directory()
	i.flags.Var(&inputs, "input", "input `NAME:TYPE:DIMS`, such as IMAGE:FP32:3,-1,-1; may be repeated (default INPUT0:FP32:-1)")
	i.flags.Var(&outputs, "output", "output `NAME:TYPE:DIMS`; may be repeated (default OUTPUT0:FP32:-1)")
	i.flags.IntVar(&m.MaxBatchSize, "max-batch-size", 0, "max_batch_size `N` in config.pbtxt; above 0, tensors have a batch dimension before DIMS, and requests are batched")
	i.flags.BoolVar(&m.Decoupled, "decoupled", false, "send any number of responses to a request, over gRPC streams")
	i.flags.BoolVar(&m.Torch, "torch", false, "compute with a torch.nn.Module")
	name, err := i.parse(modelName, "digits, underscores and hyphens")
	if err != nil {
		return err
	}
	if m.MaxBatchSize < 0 {
		return command.Usagef("--max-batch-size is %d, want 0 or more", m.MaxBatchSize)
	}
	if inputs == nil {
		inputs = tensors{{Name: "INPUT0", Type: infer.FP32, Dims: []int64{-1}}}
	}
	if outputs == nil {
		outputs = tensors{{Name: "OUTPUT0", Type: infer.FP32, Dims: []int64{-1}}}
	}
	m.Name, m.Inputs, m.Outputs = name, inputs, outputs
	if err := m.join(); err != nil {
		return err
	}
	files, err := write("model", &m, *directory, name)
	if err != nil {
		return err
	}
	return i.tell(*directory, name, files)
}

// join names the variables, and finds for each output the input that it can copy: the first that no
// other output copies.
func (m *model) join() error {
	taken := slices.Clone(pythonWords)
	for _, list := range [][]tensor{m.Inputs, m.Outputs} {
		for at := range list {
			t := &list[at]
			if m.Torch && torchTypes[t.Type] == "" {
				return command.Usagef("%s is %s, which PyTorch does not support: leave out --torch, or choose another type", t.Name, t.Type)
			}
			t.Var = strings.ToLower(strings.ReplaceAll(t.Name, ".", "_"))
			for slices.Contains(taken, t.Var) {
				t.Var += "_"
			}
			taken = append(taken, t.Var)
		}
	}
	var copied []*tensor
	for o := range m.Outputs {
		for in := range m.Inputs {
			if from := &m.Inputs[in]; from.like(&m.Outputs[o]) && !slices.Contains(copied, from) {
				m.Outputs[o].From = from
				copied = append(copied, from)
				break
			}
		}
	}
	return nil
}

// Batching reports whether tensors have a batch dimension.
func (m *model) Batching() bool { return m.MaxBatchSize > 0 }

// NeedsRows reports whether an output's shape depends on the number of rows.
func (m *model) NeedsRows() bool {
	return m.Batching() && slices.ContainsFunc(m.Outputs, func(t tensor) bool { return t.From == nil })
}

// Rows returns the first dimension of such an output's shape.
func (m *model) Rows() string {
	if m.Batching() {
		return "rows"
	}
	return ""
}

// Parameters returns the parameter list of the compute function.
func (m *model) Parameters() string {
	return list(m.Inputs, func(t tensor) string { return t.Var + ": " + m.array() })
}

// Results returns its result.
func (m *model) Results() string {
	return "tuple[" + list(m.Outputs, func(tensor) string { return m.array() }) + "]"
}

// array returns the type used in computations.
func (m *model) array() string {
	if m.Torch {
		return "torch.Tensor"
	}
	return "Array"
}

// Arguments returns the inputs' variables.
func (m *model) Arguments() string { return list(m.Inputs, func(t tensor) string { return t.Var }) }

// Returned is the tuple of the outputs.
func (m *model) Returned() string {
	text := list(m.Outputs, func(t tensor) string { return t.Var })
	if len(m.Outputs) == 1 {
		return "(" + text + ",)"
	}
	return text
}

// Shown describes the skeleton's response to a request.
func (m *model) Shown() string {
	return list(m.Outputs, func(t tensor) string {
		if t.From != nil {
			return t.Name + " is " + t.From.Name
		}
		return t.Name + " is " + map[bool]string{true: "empty strings", false: "zeros"}[t.Type == infer.Bytes]
	})
}

func list(tensors []tensor, text func(tensor) string) string {
	var texts []string
	for _, t := range tensors {
		texts = append(texts, text(t))
	}
	return strings.Join(texts, ", ")
}
