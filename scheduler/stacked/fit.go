package stacked

import (
	"math"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// A padded input may become so many times as large as what it is made of, beside
// a small size that is always allowed. A request that would make it larger goes into another
// batch: the shapes of one client must cost the others neither their responses nor
// their memory.
const (
	mostPadding   = 16
	smallElements = 1 << 16
)

// Strategy keeps requests in different batches that cannot be stacked, or only
// with far too much padding. Other, which may be nil, is asked as well.
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
		// Both are asked about the first one, which is in whatever they say.
		fits := b.add(r)
		return (others == nil || others(r)) && fits
	}
}

// extents are those of a batch that is being formed.
type extents struct {
	plan   *Plan
	any    bool
	closed bool // its only request goes with no other
	rows   int64
	inputs map[string]extent
}

// extent is that of one padded input: the largest of each dimension of an item,
// and how many elements it is made of.
type extent struct {
	item     []int64
	elements int64
}

// add reports whether a request fits, and if so, or if it is the first, takes it
// into account.
func (e *extents) add(r *infer.Request) bool {
	first := !e.any
	e.any = true
	fits := !e.closed
	rows := e.rows + max(r.BatchSize, 1)
	next := make(map[string]extent, len(e.plan.inputs))
	for name, in := range e.plan.inputs {
		t := r.Input(name)
		if t == nil || len(t.Shape) == 0 {
			if x, known := e.inputs[name]; known {
				next[name] = x
			}
			continue
		}
		for _, d := range t.Shape {
			fits = fits && d <= math.MaxInt32 // which batch_input can tell
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

// with is the extent with the items of one tensor more, of so many rows in all.
// It reports whether that is reasonable.
func (x extent) with(t *infer.Tensor, rows int64) (extent, bool) {
	made, ok := infer.Elements(t.Shape)
	item := append([]int64{rows}, t.Shape[1:]...)
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
