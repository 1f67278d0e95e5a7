package metrics

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"
)

// series is a custom metric with its labels.
type series struct {
	family *customFamily
	labels string // formatted, without braces
	refs   int    // under custom.mu

	number    atomic.Uint64 // value of a counter or gauge, as bits
	histogram *histogram    // nil for counters and gauges
}

type histogram struct {
	bounds []float64 // upper bounds, ascending, without +Inf

	mu     sync.Mutex
	counts []uint64 // one more than bounds, for +Inf; bound: maxCustomBuckets
	sum    float64
}

func newSeries(f *customFamily, labels string, buckets []float64) *series {
	s := &series{family: f, labels: labels}
	if f.kind == Histogram {
		if n := len(buckets); n > 0 && math.IsInf(buckets[n-1], 1) {
			buckets = buckets[:n-1]
		}
		s.histogram = &histogram{bounds: append([]float64(nil), buckets...), counts: make([]uint64, len(buckets)+1)} // bound: maxCustomBuckets
	}
	return s
}

// cost returns the number of samples on the page.
func (s *series) cost() int {
	if s.histogram == nil {
		return 1
	}
	return len(s.histogram.bounds) + 3
}

// bytes returns the charge for a series.
func (s *series) bytes() int {
	n := len(s.labels) + 256
	if s.histogram != nil {
		n += 16 * len(s.histogram.counts)
	}
	return n
}

// apply applies an operation, and reports whether the kind allows it.
func (s *series) apply(operation Operation, value float64) bool {
	switch {
	case operation == Increment && (s.family.kind == Gauge || s.family.kind == Counter && !(value < 0)): // NaN is allowed
		for {
			old := s.number.Load()
			if s.number.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+value)) {
				return true
			}
		}
	case operation == Set && s.family.kind == Gauge:
		s.number.Store(math.Float64bits(value))
	case operation == Observe && s.family.kind == Histogram:
		s.histogram.observe(value)
	default:
		return false
	}
	return true
}

func (s *series) value() float64 { return math.Float64frombits(s.number.Load()) }

func (h *histogram) observe(value float64) {
	at := sort.SearchFloat64s(h.bounds, value) // NaN is above all bounds
	h.mu.Lock()
	h.counts[at]++
	h.sum += value
	h.mu.Unlock()
}

// read returns cumulative counts of the buckets.
func (h *histogram) read() (cumulative []uint64, sum float64) {
	h.mu.Lock()
	cumulative, sum = append(cumulative, h.counts...), h.sum
	h.mu.Unlock()
	for i := 1; i < len(cumulative); i++ {
		cumulative[i] += cumulative[i-1]
	}
	return cumulative, sum
}
