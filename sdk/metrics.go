package sdk

// MetricKind is the kind of a metric family.
type MetricKind int

// The kinds of metrics.
const (
	Counter   MetricKind = 0
	Gauge     MetricKind = 1
	Histogram MetricKind = 2
)

// Metrics creates custom metrics, which the server publishes together with its own. It, its
// families and their metrics are safe for concurrent use.
type Metrics interface {
	// NewFamily creates a family. Families with the same name and kind are shared, even between
	// models.
	NewFamily(kind MetricKind, name, description string) (MetricFamily, error)
}

// MetricFamily creates metrics that differ in their labels.
type MetricFamily interface {
	// NewMetric creates a metric, or shares the existing one with these labels. Only histograms have
	// buckets: their upper bounds, in ascending order.
	NewMetric(labels map[string]string, buckets ...float64) (Metric, error)
	// Close ends the use of the family and its metrics. A family that is not closed is published until
	// the model is unloaded, and continues after a reload.
	Close() error
}

// Metric is one time series.
type Metric interface {
	Increment(by float64) error  // of a counter or a gauge
	Set(to float64) error        // of a gauge
	Observe(value float64) error // of a histogram
	Value() (float64, error)     // of a counter or a gauge
	Close() error
}
