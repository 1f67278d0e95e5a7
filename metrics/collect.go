package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nereid-serving/nereid/metrics/exposition"
	"github.com/nereid-serving/nereid/panics"
)

const counter, gauge = "counter", "gauge"

// family has one sample for each model.
type family struct {
	name, help string
	kind       string
	duration   bool // left out with the duration counters
	version    bool // not shown for single GPUs
	value      func(*Model) float64
}

var families = []family{
	{"nv_inference_request_success", "Number of successful inference requests, all batch sizes", counter, false, false,
		func(m *Model) float64 { return float64(m.success.Load()) }},
	{"nv_inference_count", "Number of inferences performed (does not include cached requests)", counter, false, false,
		func(m *Model) float64 { return float64(m.inferences.Load()) }},
	{"nv_inference_exec_count", "Number of model executions performed (does not include cached requests)", counter, false, false,
		func(m *Model) float64 { return float64(m.executions.Load()) }},
	{"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds (includes cached requests)",
		counter, true, false, func(m *Model) float64 { return float64(m.total.Load()) }},
	{"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds (includes cached requests)",
		counter, true, false, func(m *Model) float64 { return float64(m.queue.Load()) }},
	{"nv_inference_compute_input_duration_us", inputHelp,
		counter, true, false, func(m *Model) float64 { return float64(m.input.Load()) }},
	{"nv_inference_compute_infer_duration_us", inferHelp,
		counter, true, false, func(m *Model) float64 { return float64(m.infer.Load()) }},
	{"nv_inference_compute_output_duration_us", outputHelp,
		counter, true, false, func(m *Model) float64 { return float64(m.output.Load()) }},
	{"nv_inference_pending_request_count", "Instantaneous number of pending requests awaiting execution per-model.",
		gauge, false, true, func(m *Model) float64 { return float64(m.pending.Load()) }},
	{"nv_model_load_duration_secs", "Model load time in seconds",
		gauge, false, true, func(m *Model) float64 { return time.Duration(m.loadNanos.Load()).Seconds() }},
}

// Triton uses the same texts for counters and summaries.
const (
	inputHelp  = "Cumulative compute input duration in microseconds (does not include cached requests)"
	inferHelp  = "Cumulative compute inference duration in microseconds (does not include cached requests)"
	outputHelp = "Cumulative inference compute output duration in microseconds (does not include cached requests)"
)

// cacheFamilies are shown for models with a response cache. Like Triton, NoCounters hides all of
// them.
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

// cacheSummaries are the summaries of hits and of misses.
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

// reasonOrder has the reasons sorted by their labels.
var reasonOrder = [...]Reason{ReasonBackend, ReasonCanceled, ReasonOther, ReasonRejected}

// modelFamilies returns the families of models that are written without the library.
func modelFamilies(config *Config) (list []ownFamily) {
	for _, f := range families {
		if f.duration && config.NoCounters {
			continue
		}
		list = append(list, ownFamily{f.name, f.help, f.kind, func(page *exposition.Page, now *view) {
			for _, m := range now.models {
				if !f.version || !m.onGPU {
					page.Sample("", m.full, "", f.value(m))
				}
			}
		}})
	}
	list = append(list, ownFamily{failureName, failureHelp, counter, func(page *exposition.Page, now *view) {
		for _, m := range now.models {
			for i, labels := range m.failureLabels {
				page.Sample("", labels, "", float64(m.failures[reasonOrder[i]].Load()))
			}
		}
	}})
	for _, f := range cacheFamilies {
		if config.NoCounters {
			break
		}
		list = append(list, ownFamily{f.name, f.help, counter, func(page *exposition.Page, now *view) {
			for _, m := range now.models {
				if c := m.cache.Load(); c != nil && !m.onGPU {
					page.Sample("", m.full, "", float64(f.value(c).Load()))
				}
			}
		}})
	}
	return list
}

// distributions collects the metrics that the library counts: summaries and the histogram of first
// responses. It describes nothing in advance, because models differ in their labels.
type distributions Registry

func (*distributions) Describe(chan<- *prometheus.Desc) {}

// Collect runs in a goroutine of the library.
func (d *distributions) Collect(out chan<- prometheus.Metric) {
	for _, m := range (*Registry)(d).shown() {
		panics.Guard(d.config.Log, panics.Server, func() { m.collect(out) }, nil)()
	}
}

func (m *Model) collect(out chan<- prometheus.Metric) {
	cache := m.cache.Load()
	for i, s := range m.summaries {
		if i > 0 || cache == nil {
			out <- s
		}
	}
	if cache != nil && !m.onGPU && cache.hitSummary != nil {
		out <- cache.hitSummary
		out <- cache.missSummary
	}
	if m.first != nil {
		out <- m.first
	}
}
