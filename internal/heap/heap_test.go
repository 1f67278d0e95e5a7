package heap_test

import (
	"math/rand/v2"
	"testing"

	"github.com/nereid-serving/nereid/internal/heap"
)

type item struct{ key, index int }

// TestHeap compares a heap with a plain set after each of many random changes.
func TestHeap(t *testing.T) {
	h := heap.New(func(a, b *item) bool { return a.key < b.key }, func(x *item) *int { return &x.index })
	items := make([]*item, 40)
	for i := range items {
		items[i] = &item{}
	}
	in := make(map[*item]bool)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		x := items[random.IntN(len(items))]
		switch {
		case !in[x]:
			x.key = random.IntN(30)
			h.Push(x)
			in[x] = true
		case random.IntN(3) == 0:
			h.Remove(x)
			delete(in, x)
		default:
			x.key = random.IntN(30)
			h.Fix(x)
		}
		if h.Len() != len(in) || h.Has(x) != in[x] {
			t.Fatalf("got %d items and Has = %v, want %d and %v", h.Len(), h.Has(x), len(in), in[x])
		}
		first := h.First()
		for y := range in {
			if y.key < first.key {
				t.Fatalf("First: got key %d, but %d is in the heap", first.key, y.key)
			}
		}
	}
	for last := -1; h.Len() > 0; {
		x := h.First()
		h.Remove(x)
		if x.key < last || h.Has(x) {
			t.Fatalf("got key %d after %d, Has = %v", x.key, last, h.Has(x))
		}
		last = x.key
	}
	if x := h.First(); x != nil {
		t.Errorf("First of an empty heap: got %v, want nil", x)
	}
}
