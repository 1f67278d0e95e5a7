package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// GPU describes the load of a GPU. Unknown values are nil and not shown.
type GPU struct {
	UUID        string
	Utilization *float64 // share of 1
	MemoryTotal *float64 // bytes
	MemoryUsed  *float64 // bytes
	Power       *float64 // watts
	PowerLimit  *float64 // watts
	Energy      *float64 // joules since the server was started
}

// gpuLabel is the label for a GPU.
const gpuLabel = "gpu_uuid"

// gpuFamilies have one sample for each GPU.
var gpuFamilies = [...]struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*GPU) *float64
}{
	{"nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", prometheus.GaugeValue, func(g *GPU) *float64 { return g.Utilization }},
	{"nv_gpu_memory_total_bytes", "GPU total memory, in bytes", prometheus.GaugeValue, func(g *GPU) *float64 { return g.MemoryTotal }},
	{"nv_gpu_memory_used_bytes", "GPU used memory, in bytes", prometheus.GaugeValue, func(g *GPU) *float64 { return g.MemoryUsed }},
	{"nv_gpu_power_usage", "GPU power usage in watts", prometheus.GaugeValue, func(g *GPU) *float64 { return g.Power }},
	{"nv_gpu_power_limit", "GPU power management limit in watts", prometheus.GaugeValue, func(g *GPU) *float64 { return g.PowerLimit }},
	{
		"nv_energy_consumption", "GPU energy consumption in joules since the Triton Server started", prometheus.CounterValue,
		func(g *GPU) *float64 { return g.Energy },
	},
}

// gpus collects the metrics of GPUs.
type gpus struct {
	reading reading[[]GPU]
	log     zerolog.Logger
}

// GPUs shows the load of the GPUs. list is called for a page, unless its last result is younger
// than Config.Interval. It is called before models make metrics.
func (r *Registry) GPUs(list func() []GPU) {
	for _, f := range gpuFamilies {
		r.custom.reserved[f.name] = true
	}
	r.gatherer.MustRegister(&gpus{reading[[]GPU]{make: list, interval: r.config.Interval}, r.config.Log})
}

// Describe describes nothing in advance, like distributions.
func (*gpus) Describe(chan<- *prometheus.Desc) {}

// Collect runs in a goroutine of the library.
func (g *gpus) Collect(out chan<- prometheus.Metric) {
	panics.Guard(g.log, panics.Server, func() {
		for _, one := range g.reading.now() {
			for _, f := range gpuFamilies {
				if value := f.value(&one); value != nil {
					labels := prometheus.Labels{gpuLabel: one.UUID}
					out <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, nil, labels), f.kind, *value)
				}
			}
		}
	}, nil)()
}
