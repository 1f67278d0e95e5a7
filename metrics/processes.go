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
	CPU       time.Duration // of all its threads, since it was started
	Resident  int64         // bytes, what it shares with others among them
	Arena     int64         // bytes of shared memory that are real for its outputs
}

// processNames are the families below.
var processNames = [...]string{"nereid_instance_cpu_seconds_total", "nereid_instance_resident_bytes", "nereid_arena_bytes"}

// processFamilies are descriptions of the families, without the label of a namespace and
// with it: where equal names may live in several, as the metrics of models.
type processFamilies struct{ cpu, memory, arenas *prometheus.Desc }

var plainFamilies, namespacedFamilies = newProcessFamilies(), newProcessFamilies("namespace")

func newProcessFamilies(more ...string) processFamilies {
	version := append([]string{"model", "version"}, more...)
	// Not "instance", which is Prometheus's own name for what it scrapes.
	instance := append([]string{"model", "version", "instance_name"}, more...)
	return processFamilies{
		prometheus.NewDesc(processNames[0], "CPU time of the process of an instance", instance, nil),
		prometheus.NewDesc(processNames[1], "Resident memory of the process of an instance, what it shares with others among it", instance, nil),
		prometheus.NewDesc(processNames[2], "Shared memory that is real for outputs of a version's processes", version, nil),
	}
}

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
	type key struct {
		namespace, model, instance string
		version                    int64
	}
	instances, arenas := make(map[key]Process), make(map[key]int64)
	for _, one := range list {
		of := key{one.Namespace, one.Model, one.Instance, one.Version}
		sum := instances[of]
		sum.CPU += one.CPU
		sum.Resident += one.Resident
		instances[of] = sum
		of.instance = ""
		arenas[of] += one.Arena
	}
	order := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.model, b.model), cmp.Compare(a.version, b.version), cmp.Compare(a.instance, b.instance))
	}
	// labels returns the families of a series, and its labels.
	labels := func(of key, list ...string) (processFamilies, []string) {
		if of.namespace == "" {
			return plainFamilies, list
		}
		return namespacedFamilies, append(list, of.namespace)
	}
	for _, of := range slices.SortedFunc(maps.Keys(instances), order) {
		sum := instances[of]
		families, values := labels(of, of.model, strconv.FormatInt(of.version, 10), of.instance)
		out <- prometheus.MustNewConstMetric(families.cpu, prometheus.CounterValue, sum.CPU.Seconds(), values...)
		out <- prometheus.MustNewConstMetric(families.memory, prometheus.GaugeValue, float64(sum.Resident), values...)
	}
	for _, of := range slices.SortedFunc(maps.Keys(arenas), order) {
		families, values := labels(of, of.model, strconv.FormatInt(of.version, 10))
		out <- prometheus.MustNewConstMetric(families.arenas, prometheus.GaugeValue, float64(arenas[of]), values...)
	}
}
