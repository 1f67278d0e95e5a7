package batching

import (
	"bytes"
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Alike tells which requests of a model can be in one batch: those whose inputs
// of variable shape have the same one, beyond the batch dimension, unless the
// batch may be ragged, whose shape tensors are the same, and, where inputs are
// optional, that have the same inputs.
type Alike struct {
	names  bool // the same inputs are there
	inputs []alikeInput
}

type alikeInput struct {
	name    string
	content bool // bytes are compared, too
}

// NewAlike returns nil if all requests of a model are alike.
func NewAlike(config *kserve.ModelConfig) *Alike {
	a := &Alike{}
	for _, in := range config.GetInput() {
		a.names = a.names || in.GetOptional()
		variable := slices.Contains(in.GetDims(), -1) && !in.GetAllowRaggedBatch()
		if variable || in.GetIsShapeTensor() {
			a.inputs = append(a.inputs, alikeInput{in.GetName(), in.GetIsShapeTensor()})
		}
	}
	if !a.names && len(a.inputs) == 0 {
		return nil
	}
	return a
}

// Equal reports whether a request can be in a batch that another one has begun.
// Both have a batch dimension, or there is no second request in any batch.
func (a *Alike) Equal(first, other *infer.Request) bool {
	if a == nil {
		return true
	}
	if a.names {
		if len(first.Inputs) != len(other.Inputs) {
			return false
		}
		for i := range other.Inputs {
			if first.Input(other.Inputs[i].Name) == nil {
				return false
			}
		}
	}
	for _, in := range a.inputs {
		one, two := first.Input(in.name), other.Input(in.name)
		if one == nil || two == nil {
			if one != two {
				return false
			}
			continue
		}
		if !slices.Equal(item(one.Shape), item(two.Shape)) || in.content && !bytes.Equal(one.Data, two.Data) {
			return false
		}
	}
	return true
}

// item is a shape without its batch dimension.
func item(shape []int64) []int64 {
	if len(shape) == 0 {
		return nil
	}
	return shape[1:]
}
