package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/sdk"
)

// The operations on metrics. The numbers cross the wire.
const (
	increment uint32 = 1
	set       uint32 = 2
	observe   uint32 = 3
)

// customMetrics numbers the families and metrics of a model. It implements sdk.Metrics.
type customMetrics struct {
	mu       sync.Mutex // held while the holder is called
	holder   Metrics
	families uint64
	metrics  uint64
}

// NewFamily implements sdk.Metrics.
func (c *customMetrics) NewFamily(kind sdk.MetricKind, name, description string) (sdk.MetricFamily, error) {
	if c.holder == nil {
		return nil, infer.Errorf(infer.Unsupported, "metrics not supported")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.families++
	if err := c.holder.NewFamily(c.families, name, description, int(kind)); err != nil {
		return nil, invalid(err)
	}
	return &family{of: c, number: c.families, kind: kind}, nil
}

// invalid returns the error for the author of an invalid metric.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, "%s", err.Error())
}

// family implements sdk.MetricFamily.
type family struct {
	of     *customMetrics
	number uint64
	kind   sdk.MetricKind
	closed bool // guarded by of.mu
}

// NewMetric implements sdk.MetricFamily.
func (f *family) NewMetric(labels map[string]string, buckets ...float64) (sdk.Metric, error) {
	pairs := make([][2]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, [2]string{name, labels[name]})
	}
	c := f.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.closed {
		return nil, infer.Errorf(infer.InvalidArg, "the family of the metric has been closed")
	}
	c.metrics++
	if err := c.holder.NewMetric(f.number, c.metrics, pairs, buckets); err != nil {
		return nil, invalid(err)
	}
	return &metric{of: f, number: c.metrics}, nil
}

// Close implements sdk.MetricFamily.
func (f *family) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return invalid(f.of.holder.DropFamily(f.number))
}

// metric implements sdk.Metric.
type metric struct {
	of     *family
	number uint64
	closed bool // guarded by of.of.mu
}

func (m *metric) apply(operation uint32, value float64) error {
	c := m.of.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.closed || m.of.closed {
		return infer.Errorf(infer.InvalidArg, "the metric has been closed")
	}
	return invalid(c.holder.Apply(m.number, operation, value))
}

// Increment implements sdk.Metric.
func (m *metric) Increment(by float64) error { return m.apply(increment, by) }

// Set implements sdk.Metric.
func (m *metric) Set(to float64) error { return m.apply(set, to) }

// Observe implements sdk.Metric.
func (m *metric) Observe(value float64) error { return m.apply(observe, value) }

// Value implements sdk.Metric.
func (m *metric) Value() (float64, error) {
	c := m.of.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.closed || m.of.closed {
		return 0, infer.Errorf(infer.InvalidArg, "the metric has been closed")
	}
	value, _, err := c.holder.Value(m.number)
	return value, invalid(err)
}

// Close implements sdk.Metric. The series is shown until its family is closed.
func (m *metric) Close() error {
	m.of.of.mu.Lock()
	defer m.of.of.mu.Unlock()
	m.closed = true
	return nil
}
