package top

import (
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/server/status"
)

// View is the known state of a server at one time.
type View struct {
	At  time.Time `json:"at"`
	URL string    `json:"url"`
	// Lost is the error if no endpoint that reports models responds. The previous state stays.
	Lost string `json:"lost,omitempty"`
	// Notes describe missing data, with the reasons.
	Notes  []string `json:"notes"`
	Server Server   `json:"server"`
	Models []Row    `json:"models"`
	// Errors and Log are the last lines, oldest first.
	Errors []status.Line `json:"errors"`
	Log    []status.Line `json:"log"`

	hasStatus bool
	timed     bool      // there are percentiles since the first poll
	since     time.Time // the time of the loss
}

// keep keeps only models and lines that contain a text.
func (v *View) keep(text string) {
	if text == "" {
		return
	}
	text = strings.ToLower(text)
	without := func(name string) bool { return !strings.Contains(strings.ToLower(name), text) }
	v.Models = slices.DeleteFunc(v.Models, func(r Row) bool { return without(r.Model) })
	v.Errors = slices.DeleteFunc(slices.Clone(v.Errors), func(l status.Line) bool { return without(l.Text) })
	v.Log = slices.DeleteFunc(slices.Clone(v.Log), func(l status.Line) bool { return without(l.Text) })
}

// Server is the state of the server as a whole. Unknown fields are nil or "".
type Server struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	PID         int      `json:"pid,omitempty"`
	Uptime      *float64 `json:"uptime_seconds,omitempty"`
	Control     string   `json:"model_control,omitempty"`
	CPU         *float64 `json:"cpu_cores,omitempty"` // cores used by the server's own process
	Resident    *float64 `json:"resident_bytes,omitempty"`
	MemoryUsed  *float64 `json:"memory_used_bytes,omitempty"`
	MemoryLimit *float64 `json:"memory_limit_bytes,omitempty"`
	MachineCPU  *float64 `json:"machine_cpu_utilization,omitempty"` // a share of 1
	GPUs        []GPU    `json:"gpus,omitempty"`
}

// GPU is one GPU of the server.
type GPU struct {
	UUID        string  `json:"uuid"`
	Utilization float64 `json:"utilization"` // a share of 1
	MemoryUsed  float64 `json:"memory_used_bytes"`
	MemoryTotal float64 `json:"memory_total_bytes"`
}

// Row is one version of a model. Unknown fields are nil.
type Row struct {
	Model     string `json:"model"`
	Namespace string `json:"namespace,omitempty"`
	Version   string `json:"version,omitempty"` // "" for a model that was never loaded
	State     string `json:"state,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Backend   string `json:"backend,omitempty"`

	Ready    *float64 `json:"instances_ready,omitempty"`
	Total    *float64 `json:"instances,omitempty"`
	Queue    *float64 `json:"queue,omitempty"`
	InFlight *float64 `json:"in_flight,omitempty"`
	Rate     *float64 `json:"requests_per_second,omitempty"`
	Errors   *float64 `json:"errors_per_second,omitempty"`
	Batch    *float64 `json:"inferences_per_execution,omitempty"`
	Mean     *float64 `json:"mean_seconds,omitempty"`
	Resident *float64 `json:"resident_bytes,omitempty"`
	Losses   *float64 `json:"losses,omitempty"`
	Load     *float64 `json:"load_seconds,omitempty"`
	// Percentiles are those of the last 1, 5 and 15 minutes, or only the first entry, since the
	// first poll, if the server does not have them.
	Percentiles []*status.Percentiles `json:"percentiles_seconds,omitempty"`
	Queueing    []*status.Percentiles `json:"queue_percentiles_seconds,omitempty"`
	// P99 is the 99th percentile of the last minute.
	P99       *float64       `json:"p99_seconds,omitempty"`
	Succeeded *float64       `json:"succeeded,omitempty"` // since it was loaded
	Failed    *float64       `json:"failed,omitempty"`
	Instances []Instance     `json:"instance_list,omitempty"`
	Groups    []status.Group `json:"groups,omitempty"`
}

// Instance is one instance of a version.
type Instance struct {
	status.Instance
	CPUCores *float64 `json:"cpu_cores,omitempty"` // used by it
}

// key identifies a version of a model.
type key struct{ namespace, model, version string }

func (r *Row) key() key { return key{r.Namespace, r.Model, r.Version} }

// number returns a known value.
func number[T int | int32 | int64 | uint64 | float64](n T) *float64 {
	f := float64(n)
	return &f
}
