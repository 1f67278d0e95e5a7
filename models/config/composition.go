package config

import (
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// tensorEnd is one model's description of an ensemble tensor that it reads or writes, or the
// ensemble's own description of an input or output.
type tensorEnd struct {
	model    string
	dataType kserve.DataType
	dims     []int64
	batches  bool
}

// full returns the dims with the batch dimension, if any.
func (e *tensorEnd) full() []int64 {
	if e.batches {
		return append([]int64{-1}, e.dims...) // bound: the config
	}
	return e.dims
}

// composition checks an ensemble against the models that it calls.
type composition struct {
	config *kserve.ModelConfig
	ends   map[string]tensorEnd // the first description of each tensor; bound: the config
}

// CheckComposition checks an ensemble against the configurations of the models that it calls, by
// name, and reports whether one of its steps is decoupled.
func CheckComposition(config *kserve.ModelConfig, composing map[string]*kserve.ModelConfig) (decoupled bool, err error) {
	c := composition{config: config, ends: make(map[string]tensorEnd)}
	batches := config.GetMaxBatchSize() > 0
	for _, in := range config.GetInput() {
		dims := in.GetDims()
		if in.GetReshape() != nil {
			dims = in.GetReshape().GetShape()
		}
		c.ends[in.GetName()] = tensorEnd{config.GetName(), in.GetDataType(), dims, batches}
	}
	for _, out := range config.GetOutput() {
		c.ends[out.GetName()] = tensorEnd{config.GetName(), out.GetDataType(), Announced(out), batches}
	}
	steps := config.GetEnsembleScheduling().GetStep()
	for _, step := range steps {
		called := composing[step.GetModelName()]
		if err := c.checkStep(step, called); err != nil {
			return false, err
		}
		decoupled = decoupled || called.GetModelTransactionPolicy().GetDecoupled()
	}
	return decoupled, c.checkOrigins(steps, composing)
}

// Announced returns the dims of the ensemble tensor that an output is made from; a reshape converts
// them to the output's own.
func Announced(out *kserve.ModelOutput) []int64 {
	if out.GetReshape() != nil {
		return out.GetReshape().GetShape()
	}
	return out.GetDims()
}

func (c *composition) checkStep(step *kserve.ModelEnsembling_Step, called *kserve.ModelConfig) error {
	name, model := c.config.GetName(), called.GetName()
	if most := called.GetMaxBatchSize(); most != 0 && most < c.config.GetMaxBatchSize() {
		return invalid("ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum batch size to be %d",
			name, c.config.GetMaxBatchSize(), model, most)
	}
	batches := called.GetMaxBatchSize() > 0
	for _, input := range slices.Sorted(maps.Keys(step.GetInputMap())) {
		if !slices.ContainsFunc(called.GetInput(), func(in *kserve.ModelInput) bool { return in.GetName() == input }) {
			return invalid("in ensemble %s, ensemble tensor %s is mapping to non-existing input %s in model %s", name, step.GetInputMap()[input], input, model)
		}
	}
	for _, in := range called.GetInput() {
		tensor, mapped := step.GetInputMap()[in.GetName()]
		if !mapped {
			if in.GetOptional() {
				continue
			}
			return invalid("in ensemble %s, input %s in model %s is not mapped to any ensemble tensors", name, in.GetName(), model)
		}
		if err := c.join(tensor, tensorEnd{model, in.GetDataType(), in.GetDims(), batches}); err != nil {
			return err
		}
	}
	for _, output := range slices.Sorted(maps.Keys(step.GetOutputMap())) {
		if !slices.ContainsFunc(called.GetOutput(), func(out *kserve.ModelOutput) bool { return out.GetName() == output }) {
			return invalid("in ensemble %s, ensemble tensor %s is mapped from non-existing output %s in model %s", name, step.GetOutputMap()[output], output, model)
		}
	}
	for _, out := range called.GetOutput() {
		tensor, mapped := step.GetOutputMap()[out.GetName()]
		if !mapped {
			continue
		}
		if err := c.join(tensor, tensorEnd{model, out.GetDataType(), out.GetDims(), batches}); err != nil {
			return err
		}
	}
	return nil
}

// join compares a description of a tensor with the first one.
func (c *composition) join(tensor string, end tensorEnd) error {
	first, known := c.ends[tensor]
	if !known {
		c.ends[tensor] = end
		return nil
	}
	if first.dataType != end.dataType {
		return invalid("in ensemble %s, ensemble tensor %s: inconsistent data type: %s is inferred from model %s while %s is inferred from model %s",
			c.config.GetName(), tensor, first.dataType, first.model, end.dataType, end.model)
	}
	if !agree(first.dims, end.dims) && !agree(first.full(), end.full()) {
		return invalid("in ensemble %s, ensemble tensor %s: inconsistent shape: %s is inferred from model %s while %s is inferred from model %s",
			c.config.GetName(), tensor, infer.ShapeString(first.full()), first.model, infer.ShapeString(end.full()), end.model)
	}
	return nil
}

// agree reports whether some shape fits both dims.
func agree(a, b []int64) bool {
	return slices.EqualFunc(a, b, func(x, y int64) bool { return x == y || x == -1 || y == -1 })
}

// checkOrigins refuses a step, or an ensemble, whose tensors come from different decoupled steps,
// or partly from a decoupled step: their numbers are unknown, so they cannot be paired. A step is
// checked when all its inputs are made.
//
// bound: the config
func (c *composition) checkOrigins(steps []*kserve.ModelEnsembling_Step, composing map[string]*kserve.ModelConfig) error {
	origin := make(map[string]int) // of a tensor: the last decoupled step before it, from 1; 0: no such step
	for _, in := range c.config.GetInput() {
		origin[in.GetName()] = 0
	}
	mixed := invalid("in ensemble %s, step of model '%s' receives inputs originated from different decoupled models", c.config.GetName(), c.config.GetName())
	done := make([]bool, len(steps))
	for progress := true; progress; {
		progress = false
		for i, step := range steps {
			if done[i] {
				continue
			}
			from, same, complete := common(slices.Collect(maps.Values(step.GetInputMap())), origin)
			if !complete {
				continue
			}
			if !same {
				return mixed
			}
			if composing[step.GetModelName()].GetModelTransactionPolicy().GetDecoupled() {
				from = i + 1
			}
			done[i], progress = true, true
			for _, tensor := range step.GetOutputMap() {
				origin[tensor] = from
			}
		}
	}
	outputs := make([]string, 0, len(c.config.GetOutput()))
	for _, out := range c.config.GetOutput() {
		outputs = append(outputs, out.GetName())
	}
	if _, same, _ := common(outputs, origin); !same {
		return mixed
	}
	return nil
}

// common returns the origin that all of these tensors share.
func common(tensors []string, origin map[string]int) (from int, same, complete bool) {
	same, complete = true, true
	for i, tensor := range tensors {
		o, known := origin[tensor]
		complete = complete && known
		if i == 0 {
			from = o
		}
		same = same && o == from
	}
	return from, same, complete
}
