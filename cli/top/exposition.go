package top

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// measured has the values of /metrics that a Row, a Server and Instances show.
type measured struct {
	versions   map[key]*measuredVersion
	losses     map[string]float64 // by model
	cpu        *float64           // of the machine, share of 1
	gpus       []GPU
	nereid     bool // the page comes from Nereid
	histograms bool // some version has counted requests in a histogram
}

type measuredVersion struct {
	pending *float64
	request []uint64 // counts of the buckets, including the last, unbounded one
	queue   []uint64

	requestBounds, queueBounds []float64 // of the buckets, in seconds
	resident                   float64
	instances                  []string
}

// wanted are the families that are shown.
var wanted = map[string]bool{
	"nv_inference_pending_request_count": true, "nereid_inference_request_seconds": true, "nereid_inference_queue_seconds": true,
	"nereid_instance_resident_bytes": true, "nereid_stub_losses_total": true, "nv_cpu_utilization": true,
	"nv_gpu_utilization": true, "nv_gpu_memory_used_bytes": true, "nv_gpu_memory_total_bytes": true,
}

const (
	// maxMetrics limits the lines of wanted families, in bytes: 10,000 models with requests have 40
	// MiB of them, and of all lines 70 MiB.
	maxMetrics = 64 << 20
	// maxLabels limits the samples and the labels in them, each of which takes 100 bytes and more:
	// 10,000 models have 2 million.
	maxLabels = 4_000_000
	// maxLine limits a line, in bytes; longer ones are skipped.
	maxLine = 64 << 10
)

// filter reads a page of metrics and returns the lines of the wanted families.
func filter(page io.Reader) (text []byte, nereid bool, err error) {
	lines, labels := bufio.NewReaderSize(page, maxLine), 0
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // of a model's own metrics
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = nil
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return text, nereid, nil
		} else if err != nil && !errors.Is(err, io.EOF) {
			return nil, nereid, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, comment := bytes.CutPrefix(line, []byte("# TYPE "))
		name = bytes.TrimLeft(name, " \t")
		if end := bytes.IndexAny(name, "{ \t"); end >= 0 {
			name = name[:end]
		}
		nereid = nereid || bytes.HasPrefix(name, []byte("nereid_"))
		if !comment {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if family, found := bytes.CutSuffix(name, []byte(part)); found && wanted[string(family)] {
					name = family
				}
			}
		}
		if !wanted[string(name)] {
			continue
		}
		text = append(append(text, line...), '\n')
		if labels += 1 + bytes.Count(line, []byte("=")); labels > maxLabels || len(text) > maxMetrics {
			return nil, nereid, fmt.Errorf("the page has more than %d MiB, or %d samples and labels, about models", maxMetrics>>20, maxLabels)
		}
	}
}

// readMetrics reads a page of metrics.
func readMetrics(page io.Reader) (*measured, error) {
	text, nereid, err := filter(page)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	m := &measured{versions: make(map[key]*measuredVersion), losses: make(map[string]float64), nereid: nereid}
	each := func(name string, do func(v *measuredVersion, labels map[string]string, sample *dto.Metric)) {
		for _, sample := range families[name].GetMetric() {
			labels := make(map[string]string)
			for _, l := range sample.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var v *measuredVersion
			if labels["model"] != "" && labels["version"] != "" {
				of := key{labels["namespace"], labels["model"], labels["version"]}
				if v = m.versions[of]; v == nil {
					v = &measuredVersion{}
					m.versions[of] = v
				}
			}
			do(v, labels, sample)
		}
	}
	each("nv_inference_pending_request_count", func(v *measuredVersion, _ map[string]string, s *dto.Metric) {
		if v != nil {
			v.pending = number(valueOf(s))
		}
	})
	each("nereid_inference_request_seconds", func(v *measuredVersion, _ map[string]string, s *dto.Metric) {
		if v != nil {
			m.histograms = true
			v.requestBounds, v.request = addHistogram(v.request, s.GetHistogram())
		}
	})
	each("nereid_inference_queue_seconds", func(v *measuredVersion, _ map[string]string, s *dto.Metric) {
		if v != nil {
			v.queueBounds, v.queue = addHistogram(v.queue, s.GetHistogram())
		}
	})
	each("nereid_instance_resident_bytes", func(v *measuredVersion, labels map[string]string, s *dto.Metric) {
		if v != nil {
			v.resident += valueOf(s)
			v.instances = append(v.instances, labels["instance_name"])
		}
	})
	each("nereid_stub_losses_total", func(_ *measuredVersion, labels map[string]string, s *dto.Metric) {
		m.losses[labels["model"]] += valueOf(s)
	})
	each("nv_cpu_utilization", func(_ *measuredVersion, _ map[string]string, s *dto.Metric) {
		m.cpu = number(valueOf(s))
	})
	gpus := make(map[string]int)
	gpu := func(labels map[string]string) *GPU {
		uuid := labels["gpu_uuid"]
		if _, known := gpus[uuid]; !known {
			gpus[uuid] = len(m.gpus)
			m.gpus = append(m.gpus, GPU{UUID: uuid})
		}
		return &m.gpus[gpus[uuid]]
	}
	each("nv_gpu_utilization", func(_ *measuredVersion, labels map[string]string, s *dto.Metric) {
		gpu(labels).Utilization = valueOf(s)
	})
	each("nv_gpu_memory_used_bytes", func(_ *measuredVersion, labels map[string]string, s *dto.Metric) {
		gpu(labels).MemoryUsed = valueOf(s)
	})
	each("nv_gpu_memory_total_bytes", func(_ *measuredVersion, labels map[string]string, s *dto.Metric) {
		gpu(labels).MemoryTotal = valueOf(s)
	})
	return m, nil
}

// valueOf returns the value of a sample that is not a histogram, whatever its declared type.
func valueOf(s *dto.Metric) float64 {
	switch {
	case s.GetGauge() != nil:
		return s.GetGauge().GetValue()
	case s.GetCounter() != nil:
		return s.GetCounter().GetValue()
	}
	return s.GetUntyped().GetValue()
}

// addHistogram adds the buckets of a histogram, which are cumulative, to counts.
func addHistogram(counts []uint64, h *dto.Histogram) (bounds []float64, sum []uint64) {
	before := uint64(0)
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			break
		}
		bounds = append(bounds, b.GetUpperBound())
		sum = append(sum, b.GetCumulativeCount()-min(before, b.GetCumulativeCount()))
		before = b.GetCumulativeCount()
	}
	sum = append(sum, h.GetSampleCount()-min(before, h.GetSampleCount()))
	for i := range min(len(counts), len(sum)) {
		sum[i] += counts[i]
	}
	return bounds, sum
}
