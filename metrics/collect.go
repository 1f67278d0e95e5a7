package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nereid-serving/nereid/boundary"
)

// family is a family of one sample for each model.
type family struct {
	name, help string
	kind       prometheus.ValueType
	duration   bool // left out with the duration counters
	version    bool // of the version alone, not of what a GPU executes
	value      func(*Model) float64
}

var families = []family{
	{"nv_inference_request_success", "Number of successful inference requests, all batch sizes", prometheus.CounterValue, false, false,
		func(m *Model) float64 { return float64(m.success.Load()) }},
	{"nv_inference_count", "Number of inferences performed (does not include cached requests)", prometheus.CounterValue, false, false,
		func(m *Model) float64 { return float64(m.inferences.Load()) }},
	{"nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", prometheus.CounterValue, false, false,
		func(m *Model) float64 { return float64(m.executions.Load()) }},
	{"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)",
		prometheus.CounterValue, true, false, func(m *Model) float64 { return float64(m.total.Load()) }},
	{"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)",
		prometheus.CounterValue, true, false, func(m *Model) float64 { return float64(m.queue.Load()) }},
	{"nv_inference_compute_input_duration_us", inputHelp,
		prometheus.CounterValue, true, false, func(m *Model) float64 { return float64(m.input.Load()) }},
	{"nv_inference_compute_infer_duration_us", inferHelp,
		prometheus.CounterValue, true, false, func(m *Model) float64 { return float64(m.infer.Load()) }},
	{"nv_inference_compute_output_duration_us", outputHelp,
		prometheus.CounterValue, true, false, func(m *Model) float64 { return float64(m.output.Load()) }},
	{"nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.",
		prometheus.GaugeValue, false, true, func(m *Model) float64 { return float64(m.pending.Load()) }},
	{"nv_model_load_duration_secs", "Model load time in seconds",
		prometheus.GaugeValue, false, true, func(m *Model) float64 { return time.Duration(m.loadNanos.Load()).Seconds() }},
}

// Triton gives the compute counters and summaries the same texts.
const (
	inputHelp  = "Cumulative compute input duration in microseconds (does not include cached requests)"
	inferHelp  = "Cumulative compute inference duration in microseconds (does not include cached requests)"
	outputHelp = "Cumulative inference compute output duration in microseconds (does not include cached requests)"
)

// cacheFamilies are those of models whose responses are cached. They are left out
// with the duration counters, all of them, as in Triton.
var cacheFamilies = []struct {
	name, help string
	value      func(*cacheCounters) *atomic.Int64
}{
	{"nv_cache_num_hits_per_model", "Number of cache hits per model",
		func(c *cacheCounters) *atomic.Int64 { return &c.hits }},
	{"nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds",
		func(c *cacheCounters) *atomic.Int64 { return &c.hit }},
	{"nv_cache_num_misses_per_model", "Number of cache misses per model",
		func(c *cacheCounters) *atomic.Int64 { return &c.misses }},
	{"nv_cache_miss_duration_per_model", "Total cache miss (insert+lookup) duration per model, in microseconds",
		func(c *cacheCounters) *atomic.Int64 { return &c.miss }},
}

// cacheSummaries are that of hits and that of misses.
var cacheSummaries = [...]struct{ name, help string }{
	{"nv_cache_hit_summary_per_model", "Summary of cache hit counts/durations per model, in microseconds."},
	{"nv_cache_miss_summary_per_model", "Summary of cache miss counts/durations per model, in microseconds."},
}

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

// Collect runs in a goroutine of the library's.
func (c *modelCollector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.sorted() {
		boundary.Guard(c.config.Log, boundary.Server, func() { c.collect(m, out) }, nil)()
	}
}

func (c *modelCollector) sorted() []*Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*Model
	for _, m := range slices.SortedFunc(maps.Values(c.models), func(a, b *Model) int {
		return cmp.Or(cmp.Compare(a.key.name, b.key.name), cmp.Compare(a.key.version, b.key.version), cmp.Compare(a.key.tags, b.key.tags))
	}) {
		list = append(list, m)
		for _, uuid := range slices.Sorted(maps.Keys(m.gpus)) {
			list = append(list, m.gpus[uuid])
		}
	}
	return list
}

func (c *modelCollector) collect(m *Model, out chan<- prometheus.Metric) {
	for _, f := range families {
		if f.duration && c.config.NoCounters || f.version && m.onGPU {
			continue
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, nil, m.labels), f.kind, f.value(m))
	}
	failures := prometheus.NewDesc(failureName, failureHelp, []string{"reason"}, m.labels)
	for i, reason := range reasonLabels {
		out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(m.failures[i].Load()), reason)
	}
	cache := m.cache.Load()
	for i, s := range m.summaries {
		if i > 0 || cache == nil {
			out <- s
		}
	}
	if cache != nil && !m.onGPU {
		cache.collect(out, m.labels, c.config.NoCounters)
	}
	if m.first != nil {
		out <- m.first
	}
	m.collectStages(out)
}

func (c *cacheCounters) collect(out chan<- prometheus.Metric, labels prometheus.Labels, noCounters bool) {
	for _, f := range cacheFamilies {
		if noCounters {
			break
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, nil, labels), prometheus.CounterValue, float64(f.value(c).Load()))
	}
	if c.hitSummary != nil {
		out <- c.hitSummary
		out <- c.missSummary
	}
}
