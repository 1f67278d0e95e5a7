package stacked

import (
	"slices"

	"github.com/nereid-serving/nereid/infer"
)

// smallTensor is the largest size of a tensor on the Go heap; it travels inside the frame.
const smallTensor = 4 << 10

// memoryOf returns n bytes for a merged tensor. The group holds a reference.
func (g *group) memoryOf(n int64) ([]byte, infer.Memory, error) {
	if int64(int(n)) != n {
		return nil, nil, infer.Errorf(infer.Unavailable, "no memory for a tensor of %d bytes", n)
	}
	data, memory, err := g.instance.lend(int(n))
	if err != nil {
		// Unavailable in any case: no client asked for this size, which may include padding.
		return nil, nil, infer.Errorf(infer.Unavailable, "batch of %d requests to model '%s' cannot be stacked: %v", len(g.tasks), g.instance.plan.model, err)
	}
	if memory != nil {
		g.memory = append(g.memory, memory) // bound: the inputs of the model
	}
	return data, memory, nil
}

// lend returns n bytes for a tensor, with one reference.
func (s *instance) lend(n int) ([]byte, infer.Memory, error) {
	if n <= smallTensor {
		return make([]byte, n), nil, nil // bound: smallTensor for each input of a charged request
	}
	data, memory, err := s.allocate(n)
	if err != nil {
		return nil, nil, err
	}
	return data[:n], memory, nil
}

// fault is the error for a batch that cannot be merged. A correct scheduler forms no such batch.
func (g *group) fault(format string, args ...any) error {
	return infer.Errorf(infer.Internal, "requests of model '%s' cannot be stacked: "+format, append([]any{g.instance.plan.model}, args...)...) // bound: the arguments of one error
}

// merge creates the merged request.
func (g *group) merge() error {
	if err := g.count(); err != nil {
		return err
	}
	if err := g.head(); err != nil {
		return err
	}
	first := g.tasks[0].Request
	inputs := make([]infer.Tensor, 0, len(first.Inputs)+len(g.instance.plan.extras)) // bound: the inputs of the model
	for i := range first.Inputs {
		t, err := g.join(first.Inputs[i].Name)
		if err != nil {
			return err
		}
		inputs = append(inputs, t)
	}
	for i := range g.instance.plan.extras {
		e := &g.instance.plan.extras[i]
		if first.Input(e.source) == nil {
			continue // the input is optional
		}
		t, err := g.extra(e)
		if err != nil {
			return err
		}
		for _, t.Name = range e.targets {
			inputs = append(inputs, t)
		}
	}
	g.request.Inputs = inputs
	return nil
}

// count reads the number of rows of each request from its inputs.
func (g *group) count() error {
	g.rows = make([]int64, len(g.tasks)) // bound: the batch
	first := g.tasks[0].Request
	for i, task := range g.tasks {
		r := task.Request
		if len(r.Inputs) == 0 || len(r.Inputs) != len(first.Inputs) {
			return g.fault("one has %d inputs, another %d", len(first.Inputs), len(r.Inputs))
		}
		for j := range r.Inputs {
			in := &r.Inputs[j]
			switch {
			case first.Input(in.Name) == nil:
				return g.fault("only one has input '%s'", in.Name)
			case len(in.Shape) == 0:
				return g.fault("input '%s' has no batch dimension", in.Name)
			case j == 0:
				g.rows[i] = in.Shape[0]
			case in.Shape[0] != g.rows[i]:
				return g.fault("inputs '%s' and '%s' have shapes %s and %s", r.Inputs[0].Name, in.Name,
					infer.ShapeString(r.Inputs[0].Shape), infer.ShapeString(in.Shape))
			}
		}
		g.total += g.rows[i]
	}
	return nil
}

// parts returns the tensors of one name, in the order of the tasks.
func (g *group) parts(name string) ([]*infer.Tensor, error) {
	parts := make([]*infer.Tensor, len(g.tasks)) // bound: the batch
	for i, task := range g.tasks {
		t := task.Request.Input(name)
		if t == nil {
			return nil, g.fault("only some have input '%s'", name)
		}
		if i > 0 && (t.DataType != parts[0].DataType || len(t.Shape) != len(parts[0].Shape)) {
			return nil, g.fault("input '%s' is %s%s and %s%s", name, parts[0].DataType, infer.ShapeString(parts[0].Shape), t.DataType, infer.ShapeString(t.Shape))
		}
		if t.Shape[0] == 0 && len(t.Data) > 0 {
			t = &infer.Tensor{DataType: t.DataType, Shape: t.Shape} // an empty item has no bytes in a batch
		}
		parts[i] = t
	}
	return parts, nil
}

// join merges all tensors of a name.
func (g *group) join(name string) (infer.Tensor, error) {
	parts, err := g.parts(name)
	if err != nil {
		return infer.Tensor{}, err
	}
	first := parts[0]
	out := infer.Tensor{Name: name, DataType: first.DataType}
	how := g.instance.plan.joinOf(name)
	equal := !slices.ContainsFunc(parts, func(t *infer.Tensor) bool { return !slices.Equal(t.Shape[1:], first.Shape[1:]) })
	switch {
	case how == joinFlat:
		elements := int64(0)
		for _, t := range parts {
			n, ok := infer.Elements(t.Shape)
			if !ok {
				return out, g.fault("input '%s' has shape %s", name, infer.ShapeString(t.Shape))
			}
			elements += n
		}
		out.Shape = []int64{elements}
	case equal:
		out.Shape = slices.Clone(first.Shape) // bound: the rank of a tensor
		out.Shape[0] = g.total
	case how == joinPadded:
		return out, g.pad(parts, &out)
	default:
		return out, g.fault("input '%s' has shapes of which not only the first dimension differs", name)
	}
	return out, g.concatenate(parts, &out)
}

// concatenate copies the bytes of the parts in sequence. A single part is used as it is.
func (g *group) concatenate(parts []*infer.Tensor, out *infer.Tensor) error {
	if len(parts) == 1 {
		out.Data, out.Memory = parts[0].Data, parts[0].Memory
		return nil
	}
	size := int64(0)
	for _, t := range parts {
		size += int64(len(t.Data))
	}
	var err error
	if out.Data, out.Memory, err = g.memoryOf(size); err != nil {
		return err
	}
	rest := out.Data
	for _, t := range parts {
		rest = rest[copy(rest, t.Data):]
	}
	return nil
}
