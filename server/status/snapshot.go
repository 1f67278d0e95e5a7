package status

import "time"

// Snapshot is the state of a server at one time. Counters start at 0 with their server, version or
// instance.
type Snapshot struct {
	At     time.Time `json:"at"`
	Server Server    `json:"server"`
	// LatencyBounds are the upper bounds of the buckets of all Times, ascending, in seconds.
	LatencyBounds []float64 `json:"latency_bounds_seconds"`
	// Versions are sorted by namespace, model and version. Each has been loaded or has failed to
	// load.
	Versions []Version `json:"versions"`
	// Errors are the last lines of level error and above, Log the last lines that pass the log's
	// settings; oldest first. Last is the highest Sequence so far.
	Errors []Line `json:"errors"`
	Log    []Line `json:"log"`
	Last   uint64 `json:"log_sequence"`
}

// Server is the server as a whole.
type Server struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"` // of the protocol, as clients see it
	Build    string    `json:"build,omitempty"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Uptime   float64   `json:"uptime_seconds"`
	Control  string    `json:"model_control"` // none, poll or explicit; clients can load and unload models only with explicit
	Resident int64     `json:"resident_bytes"`
	CPU      float64   `json:"cpu_seconds"`
	// The memory that is charged to clients, and its limit.
	MemoryUsed  int64 `json:"memory_used_bytes"`
	MemoryLimit int64 `json:"memory_limit_bytes"`
	// MemoryReal is the real memory of the server. While memory is short, large requests are
	// rejected.
	MemoryReal  int64 `json:"memory_real_bytes"`
	MemoryShort bool  `json:"memory_short"`
	// Holders are the connections, streams and processes with the largest charges, largest first.
	Holders []Holder `json:"memory_holders,omitempty"`
}

// Holder is an owner of charged memory.
type Holder struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Version is one version of a model.
type Version struct {
	Model     string `json:"model"`
	Namespace string `json:"namespace,omitempty"`
	Version   int64  `json:"version"`          // 0: the model has no version, and Reason says why
	State     string `json:"state"`            // LOADING, READY, UNLOADING or UNAVAILABLE, as the index of the repository shows it
	Reason    string `json:"reason,omitempty"` // of UNAVAILABLE, with any traceback
	Backend   string `json:"backend,omitempty"`
	Platform  string `json:"platform,omitempty"`
	MaxBatch  int32  `json:"max_batch_size"`
	// Groups are the instance groups by name; see Group.
	Groups []Group `json:"groups,omitempty"`

	Queue    int64    `json:"queue"`     // requests that wait for an instance
	InFlight int64    `json:"in_flight"` // accepted and unanswered, including Queue
	Load     float64  `json:"load_seconds"`
	Counters Counters `json:"counters"`
	// Latency is nil if the histograms of stages are off.
	Latency *Latency `json:"latency,omitempty"`
	// Recent are the last 1, 5 and 15 minutes, as far as the server has run.
	Recent    []Period   `json:"recent"`
	Instances []Instance `json:"instances"`
}

// Group is a group of instances, as in the config.
type Group struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // CPU, GPU or MODEL
	Count int32  `json:"count"`
}

// Counters count requests since the version was loaded.
type Counters struct {
	Succeeded   int64            `json:"succeeded"`
	Failed      map[string]int64 `json:"failed,omitempty"` // by reason: REJECTED, CANCELED, BACKEND, OTHER
	Inferences  int64            `json:"inferences"`
	Executions  int64            `json:"executions"`
	CacheHits   int64            `json:"cache_hits"`
	CacheMisses int64            `json:"cache_misses"`
}

// Failures returns the sum over all reasons.
func (c *Counters) Failures() (all int64) {
	for _, n := range c.Failed {
		all += n
	}
	return all
}

// Latency has the cumulative histograms of the successful requests of a version.
type Latency struct {
	Request Times `json:"request"` // from acceptance to the end of execution
	Queue   Times `json:"queue"`
	Input   Times `json:"compute_input"`
	Infer   Times `json:"compute_infer"`
	Output  Times `json:"compute_output"`
}

// Times is a histogram: Counts[i] is the number above bound i-1 and not above bound i of
// LatencyBounds. The last count is above all bounds.
type Times struct {
	Counts []uint64 `json:"counts"`
	Sum    float64  `json:"sum_seconds"`
}

// Period has the counts of a version in a recent period.
type Period struct {
	// Seconds is the length of the period: 60, 300 or 900. Covered is how much of it has been
	// observed, which is less after the start of server or version.
	Seconds    int     `json:"seconds"`
	Covered    float64 `json:"covered_seconds"`
	Succeeded  int64   `json:"succeeded"`
	Failed     int64   `json:"failed"`
	Inferences int64   `json:"inferences"`
	Executions int64   `json:"executions"`
	// Percentiles of the successful requests; nil without requests or without histograms.
	Request *Percentiles `json:"request,omitempty"`
	Queue   *Percentiles `json:"queue,omitempty"`
	Infer   *Percentiles `json:"compute_infer,omitempty"`
}

// Percentiles are in seconds, interpolated within the buckets.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// Instance is one instance of a version.
type Instance struct {
	Name string `json:"name"`
	// State is starting, ready, busy, backing off, restarting, dead or stopping; see
	// docs/operations.md.
	State  string     `json:"state"`
	Since  *time.Time `json:"since,omitempty"`
	Kind   string     `json:"kind"` // CPU, GPU or MODEL
	Device int32      `json:"device"`
	// PID is 0 without a process, and for instances inside the server's own process.
	PID      int   `json:"pid"`
	Resident int64 `json:"resident_bytes"` // including memory shared with other processes
	Arena    int64 `json:"arena_bytes"`    // allocated shared memory for its outputs
	// Memory for requests that the server holds for it, by the kinds of the metric
	// nereid_memory_bytes.
	Memory    map[string]int64 `json:"memory_bytes,omitempty"`
	CPU       float64          `json:"cpu_seconds"` // of its current process
	Restarts  int              `json:"restarts"`
	Losses    int              `json:"losses"`
	LastLoss  *Loss            `json:"last_loss,omitempty"`
	NextStart *time.Time       `json:"next_start,omitempty"` // if one is planned

	Model, Namespace string `json:"-"` // its version
	Version          int64  `json:"-"`
}

// Loss is the unexpected end of an instance's process.
type Loss struct {
	At    time.Time `json:"at"`
	Cause string    `json:"cause"` // as in the metric nereid_stub_losses_total
	Text  string    `json:"text"`  // with the last lines of its standard error output
}

// Line is one line of the log.
type Line struct {
	Sequence uint64    `json:"sequence"` // increases by 1 with each line
	Time     time.Time `json:"time"`
	Level    string    `json:"level"` // debug, info, warn, error or fatal
	Source   string    `json:"place"` // file:line
	// Text has the fields of the line after the message, as key=value, and may have several lines.
	Text string `json:"text"`
}

// MostBytes bounds the JSON of a snapshot.
func (s *Snapshot) MostBytes() int64 {
	const (
		whole    = 4 << 10
		version  = 8 << 10 // mostly histograms and periods
		group    = 256
		instance = 1 << 10
		line     = 256
		escaped  = 6 // bytes of escaped text for each byte
	)
	n := whole
	for i := range s.Versions {
		v := &s.Versions[i]
		n += version + group*len(v.Groups) + instance*len(v.Instances) + escaped*(len(v.Model)+len(v.Namespace)+len(v.Reason)+len(v.Backend)+len(v.Platform))
		for _, g := range v.Groups {
			n += escaped * len(g.Name)
		}
		for i := range v.Instances {
			in := &v.Instances[i]
			n += escaped * len(in.Name)
			if in.LastLoss != nil {
				n += escaped * (len(in.LastLoss.Cause) + len(in.LastLoss.Text))
			}
		}
	}
	for _, list := range [...][]Line{s.Errors, s.Log} {
		for i := range list {
			n += line + escaped*(len(list[i].Text)+len(list[i].Source))
		}
	}
	return int64(n)
}
