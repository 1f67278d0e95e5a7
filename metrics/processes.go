package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

// Process describes the resources of an instance's process.
type Process struct {
	Model     string
	Namespace string // a label, unless empty
	Version   int64
	Instance  string
	Device    int32         // 1 + the number of its GPU; 0: no GPU
	GPU       string        // its UUID, a label unless empty
	CPU       time.Duration // of all threads, since its start
	Resident  int64         // bytes, including shared memory
	Arena     int64         // allocated bytes of shared memory for its outputs
	Lent      int64         // bytes of device memory that it lends
	Holds     []Bytes       // memory that the server holds for its requests
}

// Bytes is memory of one kind.
type Bytes struct {
	Kind  string
	Bytes int64
	Limit int64 // for all processes of the version together; 0: none
}

// processNames are the families below.
var processNames = [...]string{
	"nereid_instance_cpu_seconds_total", "nereid_instance_resident_bytes", "nereid_arena_bytes", "nereid_device_lent_bytes", "nereid_model_memory_bytes",
	"nereid_model_memory_limit_bytes",
}

// processRow has the values of an instance or a version in up to two families.
type processRow struct {
	labels        string
	first, second int64
}

// processRows has the data of processes on the page. Instances: CPU time in ns and resident memory.
// Versions: arena and lent memory. Holds: held memory and its limit, by kind.
type processRows struct{ instances, versions, holds []processRow }

// Processes shows the resources of processes. list is called for a page, unless its last result is
// younger than Config.Interval; the result is sorted in place. It is called before models make
// metrics.
func (r *Registry) Processes(list func() []Process) {
	r.processes = &reading[processRows]{make: func() processRows { return sumUp(list()) }, interval: r.config.Interval}
	r.add(
		ownFamily{processNames[0], "CPU time of the process of an instance", counter, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.instances {
				page.Sample("", row.labels, "", time.Duration(row.first).Seconds())
			}
		}},
		ownFamily{processNames[1], "Resident memory of the process of an instance, including memory shared with other processes", gauge, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.instances {
				page.Sample("", row.labels, "", float64(row.second))
			}
		}},
		ownFamily{processNames[2], "Shared memory that is allocated for outputs of a version's processes", gauge, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.versions {
				if row.first > 0 { // idle models have none
					page.Sample("", row.labels, "", float64(row.first))
				}
			}
		}},
		ownFamily{processNames[3], "Device memory that a version's processes have allocated to lend tensors to others", gauge, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.versions {
				if row.second > 0 { // not for most models
					page.Sample("", row.labels, "", float64(row.second))
				}
			}
		}},
		ownFamily{processNames[4], "Memory for requests that the server holds for a version's processes, by kind", gauge, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.holds { // idle models have none
				page.Sample("", row.labels, "", float64(row.first))
			}
		}},
		ownFamily{processNames[5], "Limit of nereid_model_memory_bytes, for the kinds that the version uses", gauge, func(page *exposition.Page, now *view) {
			for _, row := range now.processes.holds {
				if row.second > 0 {
					page.Sample("", row.labels, "", float64(row.second))
				}
			}
		}},
	)
}

// sumUp adds up processes with equal labels: two loads of a version may coexist, and a series must
// be unique.
//
// bound: the processes, and the kinds of memory
func sumUp(list []Process) (rows processRows) {
	slices.SortFunc(list, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.GPU, b.GPU))
	})
	holds := 0 // index of the version's first row
	for i := range list {
		p := &list[i]
		same := i > 0 && list[i-1].Namespace == p.Namespace && list[i-1].Model == p.Model && list[i-1].Version == p.Version
		if !same {
			rows.versions = append(rows.versions, processRow{labels: processLabels(p, "", "", "")})
			holds = len(rows.holds)
		}
		// Instances of one group on several GPUs have the same name.
		if !same || list[i-1].Instance != p.Instance || list[i-1].GPU != p.GPU {
			rows.instances = append(rows.instances, processRow{labels: processLabels(p, p.Instance, p.GPU, "")})
		}
		version, instance := &rows.versions[len(rows.versions)-1], &rows.instances[len(rows.instances)-1]
		instance.first += int64(p.CPU)
		instance.second += p.Resident
		version.first += p.Arena
		version.second += p.Lent
		for _, b := range p.Holds {
			labels := processLabels(p, "", "", b.Kind)
			at := slices.IndexFunc(rows.holds[holds:], func(r processRow) bool { return r.labels == labels })
			if at < 0 {
				at = len(rows.holds) - holds
				rows.holds = append(rows.holds, processRow{labels: labels})
			}
			rows.holds[holds+at].first += b.Bytes
			rows.holds[holds+at].second = max(rows.holds[holds+at].second, b.Limit)
		}
	}
	return rows
}

// processLabels formats labels sorted by name, without empty ones.
func processLabels(p *Process, instance, gpu, kind string) string {
	pairs := [...][2]string{
		{gpuLabel, gpu},
		{"instance_name", instance}, // not "instance", which Prometheus sets to its target
		{"kind", kind},
		{"model", p.Model},
		{"namespace", p.Namespace},
		{"version", strconv.FormatInt(p.Version, 10)},
	}
	return exposition.Labels(slices.DeleteFunc(pairs[:], func(l [2]string) bool { return l[1] == "" })...)
}
