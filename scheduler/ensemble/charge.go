package ensemble

import (
	"reflect"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
)

// A request to an ensemble takes memory by the size of the ensemble, whatever its own size: for
// each step and tensor, again for each response of a decoupled step.

// submittedBytes is the memory of a step's request in its model's scheduler.
const submittedBytes = 1 << 10

// sizes are the bytes that a request to an ensemble takes.
type sizes struct {
	flow int64   // with the first iteration
	plan int64   // in addition, for a choice of outputs
	row  int64   // of a later iteration
	out  int64   // of a response that waits for the client
	runs []int64 // of the request of a step in a later iteration; bound: the config
}

// sizeOf returns the memory of n values. The heap rounds sizes up.
func sizeOf[T any](n int) int64 {
	size := int64(reflect.TypeFor[T]().Size()) * int64(n)
	return size + size/8
}

// measure returns the sizes.
func (e *Scheduler) measure() sizes {
	steps, tensors := len(e.steps), len(e.tensors)
	z := sizes{
		out:  sizeOf[infer.Response](1) + sizeOf[infer.Tensor](len(e.outputs)),
		row:  sizeOf[row](1) + sizeOf[value](tensors) + sizeOf[int](steps),
		plan: sizeOf[plan](1) + sizeOf[output](len(e.outputs)) + sizeOf[bool](steps+tensors) + sizeOf[[]reader](tensors) + sizeOf[int](2*tensors),
	}
	// Slices that grow have up to twice the room.
	z.plan += 2 * (sizeOf[reader](e.widest) + sizeOf[reader](steps))
	z.flow = sizeOf[flow](1) + z.row + sizeOf[Composed](steps) + sizeOf[int](steps) + 2*sizeOf[*stepRun](steps) + z.out
	for i := range e.steps {
		s := &e.steps[i]
		n := submittedBytes + sizeOf[stepRun](1) + sizeOf[infer.Tensor](len(s.inputs)) + 2*sizeOf[infer.Place](len(s.outputs))
		z.flow += n
		z.runs = append(z.runs, n)
	}
	return z
}

// size returns the bytes that a request takes at first; chosen means that it names its outputs.
func (e *Scheduler) size(chosen bool) int64 {
	if chosen {
		return e.sizes.flow + e.sizes.plan
	}
	return e.sizes.flow
}

// take charges n bytes.
func (e *Scheduler) take(n int64) error {
	if e.config.Memory == nil {
		return nil
	}
	return e.config.Memory.Take(budget.Bodies, n)
}

// give gives n charged bytes back.
func (e *Scheduler) give(n int64) {
	if e.config.Memory != nil {
		e.config.Memory.Give(budget.Bodies, n)
	}
}
