package sdk

// MetricKind is the kind of a family of metrics.
type MetricKind int

// The kinds of metrics.
const (
	Counter   MetricKind = 0
	Gauge     MetricKind = 1
	Histogram MetricKind = 2
)

// Metrics makes custom metrics, which the server shows among its own. All of it may be called by any goroutine.
type Metrics interface {
	// NewFamily makes a family; one of the same name and kind, in whichever model, is shared.
	NewFamily(kind MetricKind, name, description string) (MetricFamily, error)
}

// MetricFamily makes metrics that differ in their labels.
type MetricFamily interface {
	// NewMetric makes a metric, or shares the one with these labels. Only histograms have buckets: their upper bounds, ascending.
	NewMetric(labels map[string]string, buckets ...float64) (Metric, error)
	// Close ends the family and its metrics. An open family is shown until the model is unloaded, and continues after a reload.
	Close() error
}

// Metric is one series.
type Metric interface {
	Increment(by float64) error  // of a counter or a gauge
	Set(to float64) error        // of a gauge
	Observe(value float64) error // of a histogram
	Value() (float64, error)     // of a counter or a gauge
	Close() error
}
