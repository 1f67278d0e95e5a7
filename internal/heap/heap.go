// Package heap has a priority queue from which any element can be removed.
package heap

// Heap is a priority queue. A field of each element has its index in the heap, so that an element
// is in one heap at most.
type Heap[T any] struct {
	less  func(a, b T) bool
	index func(T) *int // counts from 1; 0: not in the heap
	items []T          // bound: its callers have an object for each element
}

// New returns an empty heap, ordered by less. The field at index(x) belongs to the heap; its
// initial value is 0.
func New[T any](less func(a, b T) bool, index func(T) *int) Heap[T] {
	return Heap[T]{less: less, index: index}
}

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.items) }

// Has reports whether x is in the heap.
func (h *Heap[T]) Has(x T) bool { return *h.index(x) != 0 }

// First returns the least element, or the zero value if the heap is empty.
func (h *Heap[T]) First() (x T) {
	if len(h.items) > 0 {
		x = h.items[0]
	}
	return x
}

// Push adds x, which is not in the heap.
func (h *Heap[T]) Push(x T) {
	h.items = append(h.items, x)
	h.settle(x, len(h.items)-1)
}

// Remove removes x, which is in the heap.
func (h *Heap[T]) Remove(x T) {
	index, end := h.index(x), len(h.items)-1
	last := h.items[end]
	clear(h.items[end:]) // for the garbage collector
	h.items = h.items[:end]
	if *index <= end {
		h.settle(last, *index-1)
	}
	*index = 0
}

// Fix restores the order after a change of x, which is in the heap.
func (h *Heap[T]) Fix(x T) { h.settle(x, *h.index(x)-1) }

// settle moves x from index i, whose element may be overwritten, to its index.
func (h *Heap[T]) settle(x T, i int) {
	for {
		child := 2*i + 1
		if child+1 < len(h.items) && h.less(h.items[child+1], h.items[child]) {
			child++
		}
		if child >= len(h.items) || !h.less(h.items[child], x) {
			break
		}
		h.put(h.items[child], i)
		i = child
	}
	for i > 0 && h.less(x, h.items[(i-1)/2]) {
		parent := (i - 1) / 2
		h.put(h.items[parent], i)
		i = parent
	}
	h.put(x, i)
}

func (h *Heap[T]) put(x T, i int) {
	h.items[i] = x
	*h.index(x) = i + 1
}
