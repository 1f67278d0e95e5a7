package ensemble

import "github.com/nereid-serving/nereid/infer"

type valueState uint8

const (
	absent  valueState = 0
	present valueState = 1
	null    valueState = 2 // the step did not produce it
)

// value is the content of a tensor in one iteration. Its last taker gets the flow's references.
type value struct {
	state  valueState
	made   bool // produced by a step
	left   int  // remaining takers
	tensor infer.Tensor
	batch  int64 // the batch dimension, 0 without one
	label  *sequenceLabel
	slot   infer.Memory // in the window of a decoupled step's model
	// held charges the response of an iteration after the first, so that a model cannot fill the
	// queue of a step for free; otherwise nil.
	held infer.Memory
}

func (v *value) release() {
	v.tensor.Release()
	release(v.slot)
	release(v.held)
}

// retain adds a reference to the value's slot and charge.
func (v *value) retain() {
	if v.slot != nil {
		v.slot.Retain()
	}
	if v.held != nil {
		v.held.Retain()
	}
}

// release releases memory, which may be nil.
func release(m infer.Memory) {
	if m != nil {
		m.Release()
	}
}

// first returns its first argument that is not nil, and releases the other one.
func first(m, other infer.Memory) infer.Memory {
	if m == nil {
		return other
	}
	release(other)
	return m
}

// unlike reports whether exactly one of the value's producer and its consumer has a
// batch dimension; batches is the consumer's.
func (v *value) unlike(batches bool) bool { return batches != (v.batch != 0) }

// converted returns the shape for a consumer that is unlike the producer and whose config has dims.
// A batch dimension of one is added if the shape fits dims, or removed if it does not.
func (v *value) converted(batches bool, dims []int64) []int64 {
	shape := v.tensor.Shape
	switch fit := infer.ShapeFits(shape, dims); {
	case batches && fit:
		return append([]int64{1}, shape...) // bound: infer.MaxRank
	case !batches && v.batch == 1 && !fit && len(shape) > 0:
		return shape[1:]
	}
	return shape
}

// row holds the values of one iteration: a response of a decoupled step and everything computed
// from it. The client's inputs, and everything computed from them alone, belong to the first.
type row struct {
	values  []value // by tensor
	lacks   []int   // inputs without a value, by step
	outputs int     // wanted outputs without a value
	live    int     // values with remaining takers
}

// reset prepares a row without values.
//
// bound: the config
func (r *row) reset(f *flow) {
	e := f.ensemble
	r.values = make([]value, len(e.tensors))
	r.lacks = make([]int, len(e.steps))
	for i := range e.steps {
		r.lacks[i] = len(e.steps[i].inputs)
	}
	r.outputs = len(f.plan.outputs)
}

// rowLocked returns the row of an iteration. A row is dropped when its values have been taken, and
// created again for the values that follow.
func (f *flow) rowLocked(iteration int) (*row, error) {
	if iteration == 0 {
		return &f.first, nil
	}
	r := f.later[iteration]
	if r == nil {
		if err := f.ensemble.take(f.ensemble.sizes.row); err != nil {
			return nil, err
		}
		r = &row{}
		r.reset(f)
		if f.later == nil {
			f.later = make(map[int]*row)
		}
		f.later[iteration] = r
	}
	return r, nil
}

// giveRowsLocked refunds that many rows of later iterations.
func (f *flow) giveRowsLocked(n int) {
	f.ensemble.give(f.ensemble.sizes.row * int64(n))
}

// take returns a value with references of its own.
func (r *row) take(tensor int) value {
	v := &r.values[tensor]
	taken := *v
	if v.left--; v.left == 0 {
		r.live--
		*v = value{}
		return taken
	}
	taken.tensor.Retain()
	taken.retain()
	return taken
}

// release releases the remaining values. A second call has no effect.
func (r *row) release() {
	for i := range r.values {
		if r.values[i].state != absent {
			r.values[i].release()
			r.values[i] = value{}
		}
	}
	r.live = 0
}
