package metrics

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/panics"
)

// machine collects the machine's processors and memory, from /proc/stat and /proc/meminfo
// (proc(5)).
type machine struct {
	utilization reading[float64]
	log         zerolog.Logger

	// Of the previous reading; used by utilization alone, with its lock held.
	busy, idle uint64
	share      float64
}

var machineNames = [...]string{"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}

var (
	cpuUtilization = prometheus.NewDesc(machineNames[0], "CPU utilization rate [0.0 - 1.0]", nil, nil)
	memoryTotal    = prometheus.NewDesc(machineNames[1], "CPU total memory (RAM), in bytes", nil, nil)
	memoryUsed     = prometheus.NewDesc(machineNames[2], "CPU used memory (RAM), in bytes", nil, nil)
)

func newMachine(interval time.Duration, log zerolog.Logger) *machine {
	m := &machine{log: log}
	m.utilization = reading[float64]{make: m.measure, interval: interval}
	m.utilization.now()
	return m
}

func (*machine) Describe(out chan<- *prometheus.Desc) {
	out <- cpuUtilization
	out <- memoryTotal
	out <- memoryUsed
}

// Collect runs in a goroutine of the library.
func (m *machine) Collect(out chan<- prometheus.Metric) {
	panics.Guard(m.log, panics.Server, func() { m.collect(out) }, nil)()
}

func (m *machine) collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(cpuUtilization, prometheus.GaugeValue, m.utilization.now())
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return
	}
	total, available := memory(text)
	out <- prometheus.MustNewConstMetric(memoryTotal, prometheus.GaugeValue, float64(total))
	out <- prometheus.MustNewConstMetric(memoryUsed, prometheus.GaugeValue, float64(total-min(available, total)))
}

// measure returns the share of busy processor time since the previous reading.
func (m *machine) measure() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m.share
	}
	busy, idle := processors(text)
	if m.busy+m.idle > 0 && busy+idle > m.busy+m.idle && busy >= m.busy {
		m.share = float64(busy-m.busy) / float64(busy+idle-m.busy-m.idle)
	}
	m.busy, m.idle = busy, idle
	return m.share
}

// processors parses the first line of /proc/stat, in clock ticks.
func processors(stat []byte) (busy, idle uint64) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	for i, field := range strings.Fields(string(line)) { // bound: a line of /proc/stat
		ticks, _ := strconv.ParseUint(field, 10, 64)
		switch i {
		case 4, 5: // idle, iowait
			idle += ticks
		case 1, 2, 3, 6, 7, 8: // user, nice, system, irq, softirq, steal
			busy += ticks
		}
	}
	return busy, idle
}

// memory parses /proc/meminfo, in bytes.
func memory(meminfo []byte) (total, available uint64) {
	lines := bufio.NewScanner(bytes.NewReader(meminfo))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "MemTotal":
			total = kib << 10
		case "MemAvailable":
			available = kib << 10
		}
	}
	return total, available
}
