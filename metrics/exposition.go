package metrics

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/nereid-serving/nereid/metrics/exposition"
	"github.com/nereid-serving/nereid/panics"
)

// Handler renders all metrics in the text format of Prometheus. It writes the page in pieces and
// holds no lock meanwhile.
func (r *Registry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rest, err := r.gatherer.Gather()
		if err != nil && len(rest) == 0 {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		page := exposition.NewPage(w)
		r.write(page, rest)
		_ = page.Flush() // an error means that the client has disconnected
	})
}

// write merges the registry's own families with those that the library has gathered, sorted by
// name.
func (r *Registry) write(page *exposition.Page, rest []*dto.MetricFamily) {
	now := r.view()
	for _, f := range r.own {
		at, _ := slices.BinarySearchFunc(rest, f.name, func(g *dto.MetricFamily, name string) int { return strings.Compare(g.GetName(), name) })
		for _, g := range rest[:at] {
			writeGathered(page, g)
		}
		rest = rest[at:]
		if page.Failed() {
			return
		}
		page.Family(f.name, f.help, f.kind)
		panics.Guard(r.config.Log, panics.Server, func() { f.write(page, now) }, nil)()
	}
	for _, g := range rest {
		writeGathered(page, g)
	}
	r.custom.write(page)
}

// ownFamily is written without the library, whose collectors need about ten allocations per sample.
type ownFamily struct {
	name, help, kind string
	write            func(*exposition.Page, *view)
}

// add adds families in sorted order, before the page is read.
//
// bound: the server's own families
func (r *Registry) add(families ...ownFamily) {
	r.own = append(r.own, families...)
	slices.SortFunc(r.own, func(a, b ownFamily) int { return strings.Compare(a.name, b.name) })
}

// view is the data of one page.
type view struct {
	models    []*Model
	processes processRows
}

func (r *Registry) view() *view {
	now := &view{models: r.shown()}
	if r.processes != nil {
		panics.Guard(r.config.Log, panics.Server, func() { now.processes = r.processes.now() }, nil)()
	}
	return now
}

// shown returns the versions and their GPUs in the order of the library: by the number of labels,
// then by their values. The list is rebuilt after a change and never modified.
//
// bound: the versions and their GPUs
func (r *Registry) shown() []*Model {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.order == nil {
		for _, m := range r.models {
			r.order = append(r.order, m)
			r.order = slices.AppendSeq(r.order, maps.Values(m.gpus))
		}
		slices.SortFunc(r.order, func(a, b *Model) int {
			return cmp.Or(cmp.Compare(len(a.values), len(b.values)), slices.Compare(a.values, b.values), strings.Compare(a.full, b.full))
		})
	}
	return r.order
}

// writeGathered writes a family of the library.
func writeGathered(page *exposition.Page, f *dto.MetricFamily) {
	page.Family(f.GetName(), f.GetHelp(), strings.ToLower(f.GetType().String()))
	for _, m := range f.GetMetric() {
		pairs := make([][2]string, len(m.GetLabel())) // bound: the labels of a series
		for i, l := range m.GetLabel() {
			pairs[i] = [2]string{l.GetName(), l.GetValue()}
		}
		labels := exposition.Labels(pairs...)
		switch {
		case m.GetCounter() != nil:
			page.Sample("", labels, "", m.GetCounter().GetValue())
		case m.GetGauge() != nil:
			page.Sample("", labels, "", m.GetGauge().GetValue())
		case m.GetSummary() != nil:
			s := m.GetSummary()
			page.Sample("_count", labels, "", float64(s.GetSampleCount()))
			page.Sample("_sum", labels, "", s.GetSampleSum())
			for _, q := range s.GetQuantile() {
				page.Sample("", labels, exposition.Last("quantile", q.GetQuantile()), q.GetValue())
			}
		case m.GetHistogram() != nil:
			h := m.GetHistogram()
			page.Sample("_count", labels, "", float64(h.GetSampleCount()))
			page.Sample("_sum", labels, "", h.GetSampleSum())
			for _, bucket := range h.GetBucket() {
				page.Sample("_bucket", labels, exposition.Last("le", bucket.GetUpperBound()), float64(bucket.GetCumulativeCount()))
			}
			page.Sample("_bucket", labels, aboveAll, float64(h.GetSampleCount()))
		}
	}
}

// aboveAll is the label of the +Inf bucket.
var aboveAll = exposition.Last("le", math.Inf(1))

var kindNames = [...]string{Counter: "counter", Gauge: "gauge", Histogram: "histogram"}

// write writes the families of models that have a series.
func (c *custom) write(page *exposition.Page) {
	c.mu.Lock()
	names := slices.Sorted(maps.Keys(c.families))
	c.mu.Unlock()
	for _, name := range names {
		if page.Failed() {
			return
		}
		c.mu.Lock()
		f := c.families[name]
		if f == nil { // removed meanwhile
			c.mu.Unlock()
			continue
		}
		list := slices.Collect(maps.Values(f.series))
		c.mu.Unlock()
		slices.SortFunc(list, func(a, b *series) int { return strings.Compare(a.labels, b.labels) })
		page.Family(f.name, f.description, kindNames[f.kind])
		for _, s := range list {
			if s.histogram == nil {
				page.Sample("", s.labels, "", s.value())
				continue
			}
			counts, sum := s.histogram.read()
			all := float64(counts[len(counts)-1])
			page.Sample("_count", s.labels, "", all)
			page.Sample("_sum", s.labels, "", sum)
			for i, bound := range s.histogram.bounds {
				page.Sample("_bucket", s.labels, exposition.Last("le", bound), float64(counts[i]))
			}
			page.Sample("_bucket", s.labels, aboveAll, all)
		}
	}
}

// Sample is one line of the page, with its labels as between braces.
type Sample struct{ Labels, Number string }

// Samples returns the counters and gauges of a custom family, in the order of the page.
//
// bound: custom.all
func (r *Registry) Samples(family string) []Sample {
	c := r.custom
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.families[family]
	if f == nil || f.kind == Histogram {
		return nil
	}
	list := make([]Sample, 0, len(f.series))
	for _, labels := range slices.Sorted(maps.Keys(f.series)) {
		list = append(list, Sample{labels, string(exposition.AppendNumber(nil, f.series[labels].value()))})
	}
	return list
}
