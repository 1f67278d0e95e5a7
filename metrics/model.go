package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reason is why a request failed, as the label of the failure counter says it.
type Reason uint8

// The reasons of failures.
const (
	ReasonRejected Reason = iota
	ReasonCanceled
	ReasonBackend
	ReasonOther
)

var reasonLabels = [...]string{"REJECTED", "CANCELED", "BACKEND", "OTHER"}

// Durations are one successful request's, in nanoseconds.
type Durations struct{ Total, Queue, Input, Infer, Output int64 }

// Model counts for one version of a model. Its methods are safe for concurrent
// use.
type Model struct {
	registry *Registry
	key      modelKey
	labels   prometheus.Labels
	users    int // under registry.mu

	success, inferences, executions    atomic.Int64
	failures                           [len(reasonLabels)]atomic.Int64
	total, queue, input, infer, output atomic.Int64 // µs
	pending                            atomic.Int64
	loadNanos                          atomic.Int64

	summaries []prometheus.Summary // in the order of Durations; nil if not wanted
	first     prometheus.Histogram // nil if not wanted
}

// ModelOptions are what a model's config says of its metrics.
type ModelOptions struct {
	Namespace string            // shown as a label if there is one
	Tags      map[string]string // shown as labels with "_" before the name
	// FirstResponse are the bounds of the first-response histogram's buckets in
	// ms; empty is 100, 500, 2000, 5000.
	FirstResponse []float64
}

// Model returns the counters of a version. Its samples are shown until each
// caller has called Close; two loads of one version at the same time count
// together.
func (r *Registry) Model(name string, version int64, options ModelOptions) *Model {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := modelKey{options.Namespace, name, version}
	if m := r.models[key]; m != nil {
		m.users++
		return m
	}
	m := &Model{registry: r, key: key, users: 1, labels: prometheus.Labels{"model": name, "version": strconv.FormatInt(version, 10)}}
	if options.Namespace != "" {
		m.labels["namespace"] = options.Namespace
	}
	for tag, value := range options.Tags {
		m.labels["_"+tag] = value
	}
	if r.config.Summaries {
		for _, s := range summaries {
			m.summaries = append(m.summaries, prometheus.NewSummary(prometheus.SummaryOpts{
				Name: s.name, Help: s.help, ConstLabels: m.labels, Objectives: r.config.Quantiles, MaxAge: time.Minute,
			}))
		}
	}
	if r.config.Histograms {
		bounds := options.FirstResponse
		if len(bounds) == 0 {
			bounds = []float64{100, 500, 2000, 5000}
		}
		m.first = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: firstResponseName, Help: "Duration from request to first response in milliseconds",
			ConstLabels: m.labels, Buckets: bounds,
		})
	}
	r.models[key] = m
	return m
}

// Close ends one use of the model's counters.
func (m *Model) Close() {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(r.models, m.key)
	}
}

// Loaded records how long the load took.
func (m *Model) Loaded(d time.Duration) { m.loadNanos.Store(int64(d)) }

// Pending changes the number of requests that wait for an instance.
func (m *Model) Pending(change int) { m.pending.Add(int64(change)) }

// Success counts a request that succeeded with batch inferences.
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
	if m.summaries != nil {
		for i, ns := range [...]int64{d.Total, d.Queue, d.Input, d.Infer, d.Output} {
			m.summaries[i].Observe(float64(ns / 1000))
		}
	}
	if m.first != nil {
		m.first.Observe(float64(d.Total / 1e6))
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
