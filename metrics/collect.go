package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// family is a family of one sample for each model.
type family struct {
	name, help string
	kind       prometheus.ValueType
	duration   bool // left out with the duration counters
	value      func(*Model) float64
}

var families = []family{
	{"nv_inference_request_success", "Number of successful inference requests, all batch sizes", prometheus.CounterValue, false,
		func(m *Model) float64 { return float64(m.success.Load()) }},
	{"nv_inference_count", "Number of inferences performed (does not include cached requests)", prometheus.CounterValue, false,
		func(m *Model) float64 { return float64(m.inferences.Load()) }},
	{"nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", prometheus.CounterValue, false,
		func(m *Model) float64 { return float64(m.executions.Load()) }},
	{"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)",
		prometheus.CounterValue, true, func(m *Model) float64 { return float64(m.total.Load()) }},
	{"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)",
		prometheus.CounterValue, true, func(m *Model) float64 { return float64(m.queue.Load()) }},
	{"nv_inference_compute_input_duration_us", inputHelp,
		prometheus.CounterValue, true, func(m *Model) float64 { return float64(m.input.Load()) }},
	{"nv_inference_compute_infer_duration_us", inferHelp,
		prometheus.CounterValue, true, func(m *Model) float64 { return float64(m.infer.Load()) }},
	{"nv_inference_compute_output_duration_us", outputHelp,
		prometheus.CounterValue, true, func(m *Model) float64 { return float64(m.output.Load()) }},
	{"nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.",
		prometheus.GaugeValue, false, func(m *Model) float64 { return float64(m.pending.Load()) }},
	{"nv_model_load_duration_secs", "Model load time in seconds",
		prometheus.GaugeValue, false, func(m *Model) float64 { return time.Duration(m.loadNanos.Load()).Seconds() }},
}

// Triton gives the compute counters and summaries the same texts.
const (
	inputHelp  = "Cumulative compute input duration in microseconds (does not include cached requests)"
	inferHelp  = "Cumulative compute inference duration in microseconds (does not include cached requests)"
	outputHelp = "Cumulative inference compute output duration in microseconds (does not include cached requests)"
)

// summaries are in the order of the fields of Durations.
var summaries = []struct{ name, help string }{
	{"nv_inference_request_summary_us", "Summary of inference request duration in microseconds (includes cached requests)"},
	{"nv_inference_queue_summary_us", "Summary of inference queuing duration in microseconds (includes cached requests)"},
	{"nv_inference_compute_input_summary_us", inputHelp},
	{"nv_inference_compute_infer_summary_us", inferHelp},
	{"nv_inference_compute_output_summary_us", outputHelp},
}

const (
	failureName = "nv_inference_request_failure"
	failureHelp = "Number of failed inference requests, all batch sizes"

	firstResponseName = "nv_inference_first_response_histogram_ms"
)

// modelCollector renders the models' counters. It describes nothing in advance:
// models differ in their labels.
type modelCollector Registry

func (*modelCollector) Describe(chan<- *prometheus.Desc) {}

func (c *modelCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	models := slices.SortedFunc(maps.Values(c.models), func(a, b *Model) int {
		return cmp.Or(cmp.Compare(a.key.name, b.key.name), cmp.Compare(a.key.version, b.key.version))
	})
	c.mu.Unlock()
	for _, m := range models {
		for _, f := range families {
			if f.duration && c.config.NoCounters {
				continue
			}
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, nil, m.labels), f.kind, f.value(m))
		}
		failures := prometheus.NewDesc(failureName, failureHelp, []string{"reason"}, m.labels)
		for i, reason := range reasonLabels {
			out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(m.failures[i].Load()), reason)
		}
		for _, s := range m.summaries {
			out <- s
		}
		if m.first != nil {
			out <- m.first
		}
	}
}
