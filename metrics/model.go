package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

// Reason is the reason of a failed request, shown as a label.
type Reason uint8

// The reasons of failures.
const (
	ReasonRejected Reason = iota
	ReasonCanceled
	ReasonBackend
	ReasonOther
)

var reasonLabels = [...]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// Durations are the times of one successful request, in nanoseconds.
type Durations struct{ Total, Queue, Input, Infer, Output int64 }

// Model counts for one version of a model. Its methods are safe for concurrent use.
type Model struct {
	registry      *Registry
	key           modelKey
	onGPU         bool                      // it counts for one GPU
	labels        prometheus.Labels         // bound: maxTags
	full          string                    // labels as on the page
	values        []string                  // values of the labels, in that order; bound: maxTags
	failureLabels [len(reasonLabels)]string // with reasons, in the order of reasonOrder
	users         int                       // under registry.mu
	gpus          map[string]*Model         // by UUID, under registry.mu; nil mostly; bound: the GPUs

	success, inferences, executions    atomic.Int64
	failures                           [len(reasonLabels)]atomic.Int64
	total, queue, input, infer, output atomic.Int64 // µs
	pending                            atomic.Int64
	loadNanos                          atomic.Int64

	// summaries are in the order of Durations; nil if disabled. As in Triton, the summary of whole
	// requests is not shown for a model with a cache.
	summaries []prometheus.Summary
	first     prometheus.Histogram // nil if disabled
	stages    *[len(stages)]stage  // nil if disabled
	cache     atomic.Pointer[cacheCounters]
}

// cacheCounters count for a version with a response cache.
type cacheCounters struct {
	hits, misses, hit, miss atomic.Int64 // counts, and µs
	// Summaries in µs; nil if disabled.
	hitSummary, missSummary prometheus.Summary
}

// ModelOptions are the settings of a model's config for its metrics.
type ModelOptions struct {
	Namespace string            // a label, unless empty
	Tags      map[string]string // labels, with "_" before each name; those beyond maxTags are omitted
	// FirstResponse are the bounds of the first-response histogram's buckets in ms, in any order;
	// empty is 100, 500, 2000, 5000. Those beyond maxCustomBuckets are omitted.
	FirstResponse []float64
	// Cache reports whether the model's responses are cached.
	Cache bool
}

// Limits of the labels that a model's tags make: each version has several copies of them.
const (
	maxTags     = 64
	maxTagBytes = 16 << 10 // of names and values
)

// Model returns the counters of a version. Its samples are shown until each caller has called
// Close. Concurrent loads of one version share them if they have the same tags.
func (r *Registry) Model(name string, version int64, options ModelOptions) *Model {
	tags, omitted := tagLabels(options.Tags)
	if omitted > 0 {
		r.config.Log.Warn().Msgf("metrics omit %d metric_tags of model '%s': a model can have %d with %d bytes",
			omitted, name, maxTags, maxTagBytes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := modelKey{options.Namespace, name, version, exposition.Labels(tags...)}
	m := r.models[key]
	if m == nil {
		m = r.newModel(key, tags, options)
		r.models[key] = m
		r.order = nil
	}
	m.users++
	if options.Cache && m.cache.Load() == nil {
		m.cache.Store(r.newCacheCounters(m.labels))
	}
	return m
}

// OnGPU returns the counters for executions on a GPU, which have its UUID as a label and are shown
// beside those of m. Figures that do not belong to an instance count in m: queued requests,
// failures before an execution, loads, first responses and the response cache. Without a UUID
// everything counts in m.
func (m *Model) OnGPU(uuid string) *Model {
	if uuid == "" {
		return m
	}
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	g := m.gpus[uuid]
	if g == nil {
		g = r.newModel(m.key, nil, ModelOptions{})
		g.labels = maps.Clone(m.labels)
		g.labels[gpuLabel] = uuid
		g.writeLabels()
		g.summaries = r.newSummaries(g.labels)
		g.onGPU, g.first = true, nil
		g.cache.Store(m.cache.Load())
		if m.gpus == nil {
			m.gpus = make(map[string]*Model)
		}
		m.gpus[uuid] = g
		r.order = nil
	}
	return g
}

// tagLabels converts tags to labels, sorted by name. Characters that a name cannot contain become
// "_", because one bad name would spoil the page. Of equal names the first tag counts.
//
// bound: maxTags and maxTagBytes
func tagLabels(tags map[string]string) (labels [][2]string, omitted int) {
	size := 0
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		if len(labels) == maxTags || size+len(tag)+len(tags[tag]) > maxTagBytes {
			omitted++
			continue
		}
		size += len(tag) + len(tags[tag])
		name := strings.Map(func(r rune) rune {
			if r == '_' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
				return r
			}
			return '_'
		}, tag)
		name = "_" + strings.TrimLeft(name, "_") // a leading "__" is reserved
		if !slices.ContainsFunc(labels, func(l [2]string) bool { return l[0] == name }) {
			labels = append(labels, [2]string{name, strings.ToValidUTF8(tags[tag], "\uFFFD")})
		}
	}
	slices.SortFunc(labels, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return labels, omitted
}

func (r *Registry) newModel(key modelKey, tags [][2]string, options ModelOptions) *Model {
	m := &Model{registry: r, key: key, labels: prometheus.Labels{"model": key.name, "version": strconv.FormatInt(key.version, 10)}}
	if key.namespace != "" {
		m.labels["namespace"] = key.namespace
	}
	for _, tag := range tags {
		m.labels[tag[0]] = tag[1]
	}
	m.writeLabels()
	m.summaries = r.newSummaries(m.labels)
	if !r.config.NoStages {
		m.stages = new([len(stages)]stage)
	}
	if r.config.Histograms {
		bounds := options.FirstResponse[:min(len(options.FirstResponse), maxCustomBuckets)]
		bounds = slices.DeleteFunc(slices.Clone(bounds), math.IsNaN) // bound: maxCustomBuckets
		slices.Sort(bounds)
		if bounds = slices.Compact(bounds); len(bounds) == 0 {
			bounds = []float64{100, 500, 2000, 5000}
		}
		m.first = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: firstResponseName, Help: "Duration from request to first response in milliseconds",
			ConstLabels: m.labels, Buckets: bounds,
		})
	}
	return m
}

// writeLabels formats the labels for the page, sorted by name.
//
// bound: maxTags
func (m *Model) writeLabels() {
	pairs := func(labels prometheus.Labels) (list [][2]string) {
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			list = append(list, [2]string{name, labels[name]})
		}
		return list
	}
	m.full = exposition.Labels(pairs(m.labels)...)
	m.values = m.values[:0]
	for _, pair := range pairs(m.labels) {
		m.values = append(m.values, pair[1])
	}
	failed := maps.Clone(m.labels)
	for i, reason := range reasonOrder {
		failed["reason"] = reasonLabels[reason]
		m.failureLabels[i] = exposition.Labels(pairs(failed)...)
	}
}

// newSummaries returns summaries in the order of Durations, nil if disabled.
func (r *Registry) newSummaries(labels prometheus.Labels) (list []prometheus.Summary) {
	if r.config.Summaries {
		for _, s := range summaries {
			list = append(list, r.newSummary(s.name, s.help, labels))
		}
	}
	return list
}

func (r *Registry) newSummary(name, help string, labels prometheus.Labels) prometheus.Summary {
	return prometheus.NewSummary(prometheus.SummaryOpts{
		Name: name, Help: help, ConstLabels: labels, Objectives: r.config.Quantiles, MaxAge: time.Minute,
	})
}

func (r *Registry) newCacheCounters(labels prometheus.Labels) *cacheCounters {
	c := &cacheCounters{}
	if r.config.Summaries {
		c.hitSummary = r.newSummary(cacheSummaries[0].name, cacheSummaries[0].help, labels)
		c.missSummary = r.newSummary(cacheSummaries[1].name, cacheSummaries[1].help, labels)
	}
	return c
}

// Close ends one use of the model's counters.
func (m *Model) Close() {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(r.models, m.key)
		r.order = nil
	}
}

// Loaded records how long the load took.
func (m *Model) Loaded(d time.Duration) { m.loadNanos.Store(int64(d)) }

// Pending changes the number of requests without an instance.
func (m *Model) Pending(change int) { m.pending.Add(int64(change)) }

// Success counts a successful request with batch inferences.
func (m *Model) Success(batch int64, d Durations) {
	if !m.registry.config.NoCounters {
		m.success.Add(1)
		m.inferences.Add(batch)
		m.total.Add(d.Total / 1000)
		m.queue.Add(d.Queue / 1000)
		m.input.Add(d.Input / 1000)
		m.infer.Add(d.Infer / 1000)
		m.output.Add(d.Output / 1000)
	}
	each := [...]int64{d.Total, d.Queue, d.Input, d.Infer, d.Output}
	if m.stages != nil {
		for i, ns := range each {
			m.stages[i].observe(ns)
		}
	}
	if m.summaries == nil {
		return
	}
	cached := m.cache.Load() != nil
	for i, ns := range each {
		if i > 0 || !cached {
			m.summaries[i].Observe(float64(ns / 1000))
		}
	}
}

// CacheHit counts a request that the cache has answered. lookup is the time in the cache.
func (m *Model) CacheHit(total, queue, lookup int64) {
	c := m.cache.Load()
	if !m.registry.config.NoCounters {
		m.success.Add(1)
		m.total.Add(total / 1000)
		m.queue.Add(queue / 1000)
		c.hits.Add(1)
		c.hit.Add(lookup / 1000)
	}
	if m.stages != nil {
		m.stages[0].observe(total)
	}
	if m.summaries != nil {
		m.summaries[1].Observe(float64(queue / 1000))
		c.hitSummary.Observe(float64(lookup / 1000))
	}
}

// CacheMiss counts a request that the cache could not answer. took is the time of the lookup and of
// storing the response.
func (m *Model) CacheMiss(took int64) {
	c := m.cache.Load()
	if !m.registry.config.NoCounters {
		m.total.Add(took / 1000)
		c.misses.Add(1)
		c.miss.Add(took / 1000)
	}
	if c.missSummary != nil {
		c.missSummary.Observe(float64(took / 1000))
	}
}

// TimesFirst reports whether FirstResponse has an effect.
func (m *Model) TimesFirst() bool { return m.first != nil }

// FirstResponse counts the first response to a request, ns after its arrival.
func (m *Model) FirstResponse(ns int64) {
	if m.first != nil {
		m.first.Observe(float64(ns / 1e6))
	}
}

// Failure counts a request that failed.
func (m *Model) Failure(reason Reason) {
	if !m.registry.config.NoCounters {
		m.failures[reason].Add(1)
	}
}

// Execution counts an execution of the model.
func (m *Model) Execution() {
	if !m.registry.config.NoCounters {
		m.executions.Add(1)
	}
}
