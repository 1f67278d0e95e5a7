package ensemble

import "github.com/nereid-serving/nereid/infer"

// valueState says whether a tensor has a value.
type valueState uint8

const (
	absent  valueState = 0
	present valueState = 1
	null    valueState = 2 // its maker has left it out
)

// value is what a tensor of an ensemble is in one iteration. The last taker gets the
// flow's references.
type value struct {
	state  valueState
	made   bool // by a step
	left   int  // takers that have not taken it
	tensor infer.Tensor
	batch  int64 // its first dimension, 0 where that is no batch's
	label  *sequenceLabel
	slot   infer.Memory // that it has in the window of a decoupled step's model
}

func (v *value) release() {
	v.tensor.Release()
	if v.slot != nil {
		v.slot.Release()
	}
}

// unlike reports whether exactly one of the value's producer and its consumer has a
// batch dimension; batches is the consumer's.
func (v *value) unlike(batches bool) bool { return batches != (v.batch != 0) }

// converted returns the shape that a consumer unlike the producer gets, whose config
// has dims: a batch dimension of one is added where the shape fits dims, or removed
// where it does not.
func (v *value) converted(batches bool, dims []int64) []int64 {
	shape := v.tensor.Shape
	switch fit := infer.ShapeFits(shape, dims); {
	case batches && fit:
		return append([]int64{1}, shape...)
	case !batches && v.batch == 1 && !fit && len(shape) > 0:
		return shape[1:]
	}
	return shape
}

// row holds the values of one iteration: the k-th response of a decoupled step and
// all that is made from it. What clients send and what is made from that alone is
// the first.
type row struct {
	values  []value // by tensor
	lacks   []int   // of each step: inputs without a value
	outputs int     // wanted ones without a value
	live    int     // values that some taker has not taken
}

func (r *row) reset(f *flow) {
	e := f.ensemble
	r.values = make([]value, len(e.tensors))
	r.lacks = make([]int, len(e.steps))
	for i := range e.steps {
		r.lacks[i] = len(e.steps[i].inputs)
	}
	r.outputs = len(f.plan.outputs)
}

// rowLocked returns the row of an iteration. One whose values have all been taken
// is dropped, and made anew for what follows from them.
func (f *flow) rowLocked(iteration int) *row {
	if iteration == 0 {
		return &f.first
	}
	r := f.later[iteration]
	if r == nil {
		r = &row{}
		r.reset(f)
		if f.later == nil {
			f.later = make(map[int]*row)
		}
		f.later[iteration] = r
	}
	return r
}

// take hands out a value with references of its own.
func (r *row) take(tensor int) value {
	v := &r.values[tensor]
	taken := *v
	if v.left--; v.left == 0 {
		r.live--
		*v = value{}
		return taken
	}
	taken.tensor.Retain()
	if taken.slot != nil {
		taken.slot.Retain()
	}
	return taken
}

// release gives up the values that have not been taken by all. A second call does
// nothing.
func (r *row) release() {
	for i := range r.values {
		if r.values[i].state != absent {
			r.values[i].release()
			r.values[i] = value{}
		}
	}
	r.live = 0
}
