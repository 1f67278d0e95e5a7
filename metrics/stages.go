package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// stages are the histograms of each version, in the order of the fields of Durations.
var stages = [...]struct{ name, help string }{
	{"nereid_inference_request_seconds", "Time of a successful request from its acceptance to the end of its execution"},
	{"nereid_inference_queue_seconds", "Time of a successful request in the queue"},
	{"nereid_inference_compute_input_seconds", "Time until the model had the inputs of a successful request"},
	{"nereid_inference_compute_infer_seconds", "Time in which the model executed a successful request"},
	{"nereid_inference_compute_output_seconds", "Time from the model's answer to the end of the execution of a successful request"},
}

// stageBounds are the upper bounds of the buckets in ns: 50 µs to 60 s.
var stageBounds = [...]int64{
	50e3, 100e3, 250e3, 500e3,
	1e6, 2.5e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6,
	1e9, 2.5e9, 5e9, 10e9, 30e9, 60e9,
}

// stage counts the times of one stage. Requests count at the same time and take no lock,
// so a page may show a sum that is one request ahead of its buckets.
type stage struct {
	counts [len(stageBounds) + 1]atomic.Uint64
	ns     atomic.Int64
}

func (s *stage) observe(ns int64) {
	at := 0
	for at < len(stageBounds) && ns > stageBounds[at] { // mostly short: the first are the likely ones
		at++
	}
	s.counts[at].Add(1)
	s.ns.Add(max(ns, 0))
}

// collect renders the histogram.
func (s *stage) collect(out chan<- prometheus.Metric, desc *prometheus.Desc) {
	buckets, all := make(map[float64]uint64, len(stageBounds)), uint64(0)
	for i, bound := range stageBounds {
		all += s.counts[i].Load()
		buckets[float64(bound)/1e9] = all
	}
	all += s.counts[len(stageBounds)].Load()
	out <- prometheus.MustNewConstHistogram(desc, all, float64(s.ns.Load())/1e9, buckets)
}

// collectStages renders those of a version, if there are any.
func (m *Model) collectStages(out chan<- prometheus.Metric) {
	if m.stages == nil {
		return
	}
	for i := range m.stages {
		m.stages[i].collect(out, prometheus.NewDesc(stages[i].name, stages[i].help, nil, m.labels))
	}
}
