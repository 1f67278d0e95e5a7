package metrics

import (
	"cmp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

const (
	internalErrorsName = "nereid_internal_errors_total"
	restartsName       = "nereid_stub_restarts_total"
)

// Config selects the metrics.
type Config struct {
	// NoCounters omits the counters of durations and caches, and stops counting requests, like
	// Triton's counter_latencies=false.
	NoCounters bool
	// Summaries and Histograms are Triton's summary_latencies and histogram_latencies.
	Summaries, Histograms bool
	// NoStages omits the histograms of the stages of requests.
	NoStages bool
	// AllBuckets shows all buckets of these histograms instead of a selection.
	AllBuckets bool
	// Quantiles maps the quantiles of summaries to their allowed errors; default DefaultQuantiles.
	Quantiles map[float64]float64
	// CPU adds the machine's utilization and memory.
	CPU bool
	// GPU adds the load of GPUs.
	GPU bool
	// Interval is the largest age of the figures of the machine, of GPUs and of processes.
	Interval time.Duration
	// PinnedPoolBytes is the displayed size of the pinned memory pool.
	PinnedPoolBytes int64
	// NoCustom rejects custom metrics, for a server without a metrics endpoint.
	NoCustom bool
	// ModelSeries and Series limit the custom series of one model and of all models; a histogram
	// counts once per displayed sample. The defaults are DefaultModelSeries and DefaultSeries.
	ModelSeries, Series int
	// ModelBytes limits the names, descriptions, labels and buckets of one model's custom metrics;
	// default DefaultModelBytes.
	ModelBytes int
	Log        zerolog.Logger // for metrics that cannot be rendered
}

// DefaultQuantiles are the default quantiles of summaries.
var DefaultQuantiles = map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.95: 0.001, 0.99: 0.001, 0.999: 0.001}

// Registry contains all metrics of one server. It is safe for concurrent use.
type Registry struct {
	config    Config
	gatherer  *prometheus.Registry
	starts    *prometheus.CounterVec
	losses    *prometheus.CounterVec
	restarts  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	custom    *custom
	own       []ownFamily           // by name
	processes *reading[processRows] // nil without processes

	mu     sync.Mutex
	models map[modelKey]*Model // bound: the loaded versions
	order  []*Model            // order on the page; nil after a change
	// stubs has the models in the labels of starts, losses and restarts, with the number of the last
	// event.
	//
	// bound: the loaded models, and mostStubModels
	stubs  map[string]uint64
	events uint64 // of stubs
}

// mostStubModels limits the models whose stubs are counted. Counts outlive an unload, so that those
// of a reloaded model go on, but clients may load models under ever new names.
const mostStubModels = 1000

type modelKey struct {
	namespace string
	name      string
	version   int64
	tags      string
}

// New returns a registry without models.
func New(config Config) *Registry {
	if config.Quantiles == nil {
		config.Quantiles = DefaultQuantiles
	}
	if config.ModelSeries == 0 {
		config.ModelSeries = DefaultModelSeries
	}
	if config.Series == 0 {
		config.Series = DefaultSeries
	}
	r := &Registry{
		config:   config,
		gatherer: prometheus.NewRegistry(),
		models:   make(map[modelKey]*Model),
		stubs:    make(map[string]uint64),
		custom: &custom{
			off: config.NoCustom, perModel: config.ModelSeries, all: config.Series, modelBytes: cmp.Or(config.ModelBytes, DefaultModelBytes), reserved: ownNames(&config),
			families: make(map[string]*customFamily), accounts: make(map[string]*account),
		},
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nereid_stub_starts_total", Help: "Stub processes that became ready",
		}, []string{"model"}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nereid_stub_losses_total", Help: "Stub processes that ended without being told to, or did not start again",
		}, []string{"model", "cause"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: restartsName, Help: "Stub processes that replaced a lost one",
		}, []string{"model"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nereid_stub_protocol_errors_total", Help: "Stub processes that were ended because they broke a rule of the protocol",
		}, []string{"rule"}),
	}
	r.gatherer.MustRegister(r.starts, r.losses, r.restarts, r.errors)
	if config.Summaries || config.Histograms {
		r.gatherer.MustRegister((*distributions)(r))
	}
	r.add(modelFamilies(&r.config)...)
	r.add(stageFamilies(&r.config)...)
	panics.Counts(func(where panics.Where, panics func() uint64) {
		r.gatherer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: internalErrorsName, Help: "Panics of the server that ended in their own request, life, load or connection",
			ConstLabels: prometheus.Labels{"where": string(where)},
		}, func() float64 { return float64(panics()) }))
	})
	pinned := func(name, help string, value int64) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		g.Set(float64(value))
		r.gatherer.MustRegister(g)
	}
	pinned("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", config.PinnedPoolBytes)
	pinned("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", 0)
	if config.CPU {
		r.gatherer.MustRegister(newMachine(config.Interval, config.Log))
	}
	return r
}

// Gauge adds a metric that is read for each page, with labels and their values in turn. It panics
// if the name is taken with these labels. It is called before models make metrics.
func (r *Registry) Gauge(name, help string, value func() float64, labels ...string) {
	r.custom.reserved[name] = true
	pairs := make(prometheus.Labels)
	for i := 0; i+1 < len(labels); i += 2 {
		pairs[labels[i]] = labels[i+1] // bound: the server's own labels
	}
	r.gatherer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: pairs}, value))
}

// Counter is Gauge for a value that never falls.
func (r *Registry) Counter(name, help string, value func() float64) {
	r.custom.reserved[name] = true
	r.gatherer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

// StubStarted counts a stub process that became ready.
func (r *Registry) StubStarted(model string) { r.countStub(r.starts, model) }

// StubLost counts a stub process that ended without being told to, by cause.
func (r *Registry) StubLost(model, cause string) { r.countStub(r.losses, model, cause) }

// StubRestarted counts a stub process that replaced a lost one.
func (r *Registry) StubRestarted(model string) { r.countStub(r.restarts, model) }

// countStub counts an event of a stub. labels begin with the model.
func (r *Registry) countStub(c *prometheus.CounterVec, labels ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.stubs[labels[0]] = r.events
	for len(r.stubs) > mostStubModels && r.forgetStubsLocked() {
		continue
	}
	c.WithLabelValues(labels...).Inc()
}

// forgetStubsLocked removes the counts of the model whose last event is the oldest, except of
// loaded models. It reports whether there was one.
func (r *Registry) forgetStubsLocked() bool {
	loaded := make(map[string]bool, len(r.models)) // bound: the loaded models
	for key := range r.models {
		loaded[key.name] = true
	}
	oldest, first := "", r.events // the last event belongs to the model that is counted now
	for model, last := range r.stubs {
		if last < first && !loaded[model] {
			oldest, first = model, last
		}
	}
	if first == r.events {
		return false
	}
	delete(r.stubs, oldest)
	r.starts.DeleteLabelValues(oldest)
	r.restarts.DeleteLabelValues(oldest)
	r.losses.DeletePartialMatch(prometheus.Labels{"model": oldest})
	return true
}

// ProtocolError counts a violation of the named rule of the protocol.
func (r *Registry) ProtocolError(rule string) { r.errors.WithLabelValues(rule).Inc() }

// ownNames returns the names of the server's own samples, which models cannot use.
//
// bound: the server's own names
func ownNames(config *Config) map[string]bool {
	names := map[string]bool{
		internalErrorsName: true, restartsName: true,
		"nereid_stub_starts_total": true, "nereid_stub_losses_total": true, "nereid_stub_protocol_errors_total": true,
		"nv_pinned_memory_pool_total_bytes": true, "nv_pinned_memory_pool_used_bytes": true, failureName: true,
	}
	for _, f := range families {
		names[f.name] = true
	}
	for _, f := range cacheFamilies {
		names[f.name] = true
	}
	add := func(name string, suffixes ...string) {
		names[name] = true
		for _, suffix := range suffixes {
			names[name+suffix] = true
		}
	}
	for _, name := range processNames {
		add(name)
	}
	if !config.NoStages {
		for _, s := range stages {
			add(s.name, "_count", "_sum", "_bucket")
		}
	}
	if config.Summaries {
		for _, s := range summaries {
			add(s.name, "_count", "_sum")
		}
		for _, s := range cacheSummaries {
			add(s.name, "_count", "_sum")
		}
	}
	if config.Histograms {
		add(firstResponseName, "_count", "_sum", "_bucket")
	}
	if config.CPU {
		for _, name := range machineNames {
			add(name)
		}
	}
	return names
}
