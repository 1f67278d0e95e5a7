package stacked

import (
	"math"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// A padded input may be mostPadding times as large as its parts, and in any case smallElements
// large. A request that would make it larger goes into another batch: the shapes of one client must
// not cost the others their responses or their memory.
const (
	mostPadding   = 16
	smallElements = 1 << 16
)

// Strategy separates requests that cannot be stacked, or only with excessive padding. It also
// applies other, which may be nil.
func (p *Plan) Strategy(other backend.Strategy) backend.Strategy {
	if len(p.inputs) == 0 {
		return other
	}
	return fitting{p, other}
}

type fitting struct {
	plan  *Plan
	other backend.Strategy
}

// Begin implements backend.Strategy.
func (f fitting) Begin() func(*infer.Request) bool {
	var others func(*infer.Request) bool
	if f.other != nil {
		others = f.other.Begin()
	}
	b := &extents{plan: f.plan}
	return func(r *infer.Request) bool {
		// Both see the first request, which is in the batch in any case.
		fits := b.add(r)
		return (others == nil || others(r)) && fits
	}
}

// extents describes the padded inputs of a batch that is being formed.
type extents struct {
	plan   *Plan
	any    bool
	closed bool // its only request fits no other
	rows   int64
	inputs map[string]extent
}

// extent is the largest size of an item of a padded input in each dimension, and the number of
// elements without padding.
type extent struct {
	item     []int64
	elements int64
}

// add reports whether a request fits. It counts the request if so, or if it is the first.
func (e *extents) add(r *infer.Request) bool {
	first := !e.any
	e.any = true
	fits := !e.closed
	rows := e.rows + max(r.BatchSize, 1)
	next := make(map[string]extent, len(e.plan.inputs)) // bound: the inputs of the model
	for name, in := range e.plan.inputs {
		t := r.Input(name)
		if t == nil || len(t.Shape) == 0 {
			if x, known := e.inputs[name]; known {
				next[name] = x // bound: the inputs of the model
			}
			continue
		}
		for _, d := range t.Shape {
			fits = fits && d <= math.MaxInt32 // the limit of a batch_input
		}
		if in.join != joinPadded {
			continue
		}
		x, ok := e.inputs[name].with(t, rows)
		fits = fits && ok
		next[name] = x
	}
	if first {
		e.closed = !fits
	}
	if fits || first {
		e.rows, e.inputs = rows, next
	}
	return fits
}

// with returns the extent after another tensor is added, for a total of rows, and reports whether
// the padding is acceptable.
func (x extent) with(t *infer.Tensor, rows int64) (extent, bool) {
	made, ok := infer.Elements(t.Shape)
	item := append([]int64{rows}, t.Shape[1:]...) // bound: the rank of a tensor
	if x.item != nil {
		if len(x.item) != len(t.Shape)-1 {
			return x, false
		}
		for i, d := range x.item {
			item[i+1] = max(d, item[i+1])
		}
		made += x.elements
	}
	padded, known := infer.Elements(item)
	ok = ok && known && padded/mostPadding <= made+smallElements
	return extent{item: item[1:], elements: made}, ok
}
