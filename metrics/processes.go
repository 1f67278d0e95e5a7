package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
)

// Process is what the process of an instance takes.
type Process struct {
	Model     string
	Namespace string // shown as a label if there is one
	Version   int64
	Instance  string
	Device    int32         // 1 + the number of its GPU, 0: it has none
	GPU       string        // its UUID, shown as a label if there is one
	CPU       time.Duration // of all its threads, since it was started
	Resident  int64         // bytes, what it shares with others among them
	Arena     int64         // bytes of shared memory that are real for its outputs
	Lent      int64         // bytes of devices' memory that it has lent
}

// processNames are the families below.
var processNames = [...]string{"nereid_instance_cpu_seconds_total", "nereid_instance_resident_bytes", "nereid_arena_bytes", "nereid_device_lent_bytes"}

// processes shows what the processes of instances take.
type processes struct {
	reading reading[Process]
	log     zerolog.Logger
}

// Processes shows what the processes of instances take. list is called when the metrics
// are read, unless its last result is younger than Config.Interval. It is for the time
// before models make metrics.
func (r *Registry) Processes(list func() []Process) {
	r.gatherer.MustRegister(&processes{reading[Process]{list: list, interval: r.config.Interval}, r.config.Log})
}

// Describe describes nothing in advance, as modelCollector does.
func (*processes) Describe(chan<- *prometheus.Desc) {}

// Collect runs in a goroutine of the library's.
func (p *processes) Collect(out chan<- prometheus.Metric) {
	boundary.Guard(p.log, boundary.Server, func() { p.collect(p.reading.now(), out) }, nil)()
}

// collect adds up what has equal labels: two loads of a version may live at the same
// time, and the library refuses a series that comes twice.
func (p *processes) collect(list []Process, out chan<- prometheus.Metric) {
	// Instances of one group on several GPUs have the same name.
	type key struct {
		namespace, model, instance, gpu string
		version                         int64
	}
	instances, versions := make(map[key]Process), make(map[key]Process)
	for _, one := range list {
		of := key{one.Namespace, one.Model, one.Instance, one.GPU, one.Version}
		sum := instances[of]
		sum.CPU += one.CPU
		sum.Resident += one.Resident
		instances[of] = sum
		of.instance, of.gpu = "", ""
		sum = versions[of]
		sum.Arena += one.Arena
		sum.Lent += one.Lent
		versions[of] = sum
	}
	order := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.model, b.model), cmp.Compare(a.version, b.version),
			cmp.Compare(a.instance, b.instance), cmp.Compare(a.gpu, b.gpu))
	}
	labels := func(of key) prometheus.Labels {
		labels := prometheus.Labels{"model": of.model, "version": strconv.FormatInt(of.version, 10)}
		for name, value := range map[string]string{
			"instance_name": of.instance, // not "instance", which is Prometheus's own name for what it scrapes
			"namespace":     of.namespace, gpuLabel: of.gpu,
		} {
			if value != "" {
				labels[name] = value
			}
		}
		return labels
	}
	show := func(name, help string, kind prometheus.ValueType, value float64, labels prometheus.Labels) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), kind, value)
	}
	for _, of := range slices.SortedFunc(maps.Keys(instances), order) {
		sum, labels := instances[of], labels(of)
		show(processNames[0], "CPU time of the process of an instance", prometheus.CounterValue, sum.CPU.Seconds(), labels)
		show(processNames[1], "Resident memory of the process of an instance, what it shares with others among it",
			prometheus.GaugeValue, float64(sum.Resident), labels)
	}
	for _, of := range slices.SortedFunc(maps.Keys(versions), order) {
		sum, labels := versions[of], labels(of)
		show(processNames[2], "Shared memory that is real for outputs of a version's processes", prometheus.GaugeValue, float64(sum.Arena), labels)
		if sum.Lent > 0 { // most models have no device
			show(processNames[3], "Memory of devices that a version's processes have made to lend tensors to others", prometheus.GaugeValue, float64(sum.Lent), labels)
		}
	}
}
