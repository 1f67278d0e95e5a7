package metrics

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Handler renders all metrics in the text format of Prometheus, as Triton does:
// the library's own would write a million as 1e+06.
func (r *Registry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		families, err := r.gatherer.Gather()
		if err != nil && len(families) == 0 {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var page []byte
		for _, f := range families {
			page = appendOwn(page, f)
		}
		page = r.custom.appendTo(page)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(page) // the client has gone, if anything
	})
}

// appendOwn appends one of the server's own families.
func appendOwn(b []byte, f *dto.MetricFamily) []byte {
	name := f.GetName()
	b = appendHead(b, name, f.GetHelp(), strings.ToLower(f.GetType().String()))
	for _, m := range f.GetMetric() {
		pairs := make([][2]string, len(m.GetLabel()))
		for i, l := range m.GetLabel() {
			pairs[i] = [2]string{l.GetName(), l.GetValue()}
		}
		labels := string(appendLabels(nil, pairs))
		switch {
		case m.GetCounter() != nil:
			b = appendSample(b, name, "", labels, "", 0, m.GetCounter().GetValue())
		case m.GetGauge() != nil:
			b = appendSample(b, name, "", labels, "", 0, m.GetGauge().GetValue())
		case m.GetSummary() != nil:
			s := m.GetSummary()
			b = appendSample(b, name, "_count", labels, "", 0, float64(s.GetSampleCount()))
			b = appendSample(b, name, "_sum", labels, "", 0, s.GetSampleSum())
			for _, q := range s.GetQuantile() {
				b = appendSample(b, name, "", labels, "quantile", q.GetQuantile(), q.GetValue())
			}
		case m.GetHistogram() != nil:
			h := m.GetHistogram()
			b = appendSample(b, name, "_count", labels, "", 0, float64(h.GetSampleCount()))
			b = appendSample(b, name, "_sum", labels, "", 0, h.GetSampleSum())
			for _, bucket := range h.GetBucket() {
				b = appendSample(b, name, "_bucket", labels, "le", bucket.GetUpperBound(), float64(bucket.GetCumulativeCount()))
			}
			b = appendSample(b, name, "_bucket", labels, "le", math.Inf(1), float64(h.GetSampleCount()))
		}
	}
	return b
}

var kindNames = [...]string{Counter: "counter", Gauge: "gauge", Histogram: "histogram"}

// appendTo appends the families of models that have a series.
func (c *custom) appendTo(b []byte) []byte {
	type shown struct {
		*customFamily
		series []*series
	}
	c.mu.Lock()
	var list []shown
	for _, name := range slices.Sorted(maps.Keys(c.families)) {
		f := c.families[name]
		if len(f.series) == 0 {
			continue
		}
		s := shown{customFamily: f}
		for _, labels := range slices.Sorted(maps.Keys(f.series)) {
			s.series = append(s.series, f.series[labels])
		}
		list = append(list, s)
	}
	c.mu.Unlock()
	for _, f := range list {
		b = appendHead(b, f.name, f.description, kindNames[f.kind])
		for _, s := range f.series {
			if s.histogram == nil {
				b = appendSample(b, f.name, "", s.labels, "", 0, s.value())
				continue
			}
			counts, sum := s.histogram.read()
			all := float64(counts[len(counts)-1])
			b = appendSample(b, f.name, "_count", s.labels, "", 0, all)
			b = appendSample(b, f.name, "_sum", s.labels, "", 0, sum)
			for i, bound := range s.histogram.bounds {
				b = appendSample(b, f.name, "_bucket", s.labels, "le", bound, float64(counts[i]))
			}
			b = appendSample(b, f.name, "_bucket", s.labels, "le", math.Inf(1), all)
		}
	}
	return b
}

// Sample is one line of the page. Labels are as between its braces.
type Sample struct{ Labels, Number string }

// Samples returns the counters and gauges of a family that models make, in the order of the
// page.
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
		list = append(list, Sample{labels, string(appendNumber(nil, f.series[labels].value()))})
	}
	return list
}

var (
	escapeHelp  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	escapeValue = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)

func appendHead(b []byte, name, help, kind string) []byte {
	if help != "" {
		b = append(b, "# HELP "...)
		b = append(b, name...)
		b = append(b, ' ')
		b = append(b, escapeHelp.Replace(help)...)
		b = append(b, '\n')
	}
	b = append(b, "# TYPE "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, kind...)
	return append(b, '\n')
}

// appendLabels appends labels as they stand between the braces.
func appendLabels(b []byte, labels [][2]string) []byte {
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, l[0]...)
		b = append(b, `="`...)
		b = append(b, escapeValue.Replace(l[1])...)
		b = append(b, '"')
	}
	return b
}

// appendSample appends one line. The label last, if there is one, has a number
// and stands behind the others.
func appendSample(b []byte, name, suffix, labels, last string, bound, value float64) []byte {
	b = append(b, name...)
	b = append(b, suffix...)
	if labels != "" || last != "" {
		b = append(b, '{')
		b = append(b, labels...)
		if last != "" {
			if labels != "" {
				b = append(b, ',')
			}
			b = append(b, last...)
			b = append(b, `="`...)
			b = appendNumber(b, bound)
			b = append(b, '"')
		}
		b = append(b, '}')
	}
	b = append(b, ' ')
	b = appendNumber(b, value)
	return append(b, '\n')
}

// appendNumber appends a number as Triton does, with up to 16 digits and no
// exponent below 10¹⁶, and with a digit more where it would be another one.
func appendNumber(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "Nan"...)
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	begin := len(b)
	b = strconv.AppendFloat(b, v, 'g', 16, 64)
	if same, err := strconv.ParseFloat(string(b[begin:]), 64); err != nil || same != v {
		b = strconv.AppendFloat(b[:begin], v, 'g', -1, 64)
	}
	return b
}
