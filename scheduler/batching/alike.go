package batching

import (
	"bytes"
	"slices"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Alike decides which requests of a model fit into one batch. Inputs of variable shape must have
// equal shapes beyond the batch dimension unless the batch may be ragged. Shape tensors must be
// equal. If inputs are optional, requests must have the same inputs.
type Alike struct {
	names  bool // compare the names of inputs
	inputs []alikeInput
}

type alikeInput struct {
	name    string
	content bool // compare the bytes too
}

// NewAlike returns nil if all requests of a model are alike.
func NewAlike(config *kserve.ModelConfig) *Alike {
	a := &Alike{}
	for _, in := range config.GetInput() {
		a.names = a.names || in.GetOptional()
		variable := slices.Contains(in.GetDims(), -1) && !in.GetAllowRaggedBatch()
		if variable || in.GetIsShapeTensor() {
			a.inputs = append(a.inputs, alikeInput{in.GetName(), in.GetIsShapeTensor()}) // bound: the inputs of the model
		}
	}
	if !a.names && len(a.inputs) == 0 {
		return nil
	}
	return a
}

// Equal reports whether other fits into the batch that first has begun. Both have a batch
// dimension; without one a batch has one request.
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

// item returns a shape without its batch dimension.
func item(shape []int64) []int64 {
	if len(shape) == 0 {
		return nil
	}
	return shape[1:]
}
