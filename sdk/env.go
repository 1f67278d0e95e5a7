package sdk

import (
	"log/slog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
)

// Now returns the current time in nanoseconds, on the clock that statistics use.
func Now() int64 { return backend.Now() }

// ModelEnv describes a model version and its server. It is safe for concurrent use until
// Model.Close has returned.
type ModelEnv struct {
	Name      string
	Version   int64
	Directory string // of the model; Directory/Version has the files of this version
	// AutoComplete allows SetConfig.
	AutoComplete bool
	Backend      *BackendEnv
	Server       Server
	Metrics      Metrics
	Log          *slog.Logger

	host ModelHost
}

// ModelHost implements a ModelEnv. Package engine has an implementation; tests of backends may have
// their own.
type ModelHost interface {
	Config() *kserve.ModelConfig
	ConfigJSON() []byte
	SetConfig(config *kserve.ModelConfig) error
	ReportMemory(bytes int64)
}

// NewModelEnv returns a copy of env with this host. Only tests of backends call it.
func NewModelEnv(env ModelEnv, host ModelHost) *ModelEnv {
	env.host = host
	return &env
}

// Config returns the model's normalised config. In NewModel it is the user's config, or that of
// SetConfig; for instances it is the final one. It must not be modified: SetConfig takes a modified
// copy (proto.Clone).
func (e *ModelEnv) Config() *kserve.ModelConfig { return e.host.Config() }

// ConfigJSON returns the config as JSON, in the form of the config endpoint.
func (e *ModelEnv) ConfigJSON() []byte { return e.host.ConfigJSON() }

// SetConfig completes the config. It may be called in NewModel if AutoComplete is true. The server
// takes max_batch_size, inputs, outputs and decoupled from it, and the scheduler if the user has
// chosen none. An invalid config fails the load after NewModel has returned.
func (e *ModelEnv) SetConfig(config *kserve.ModelConfig) error { return e.host.SetConfig(config) }

// ReportMemory reports how many bytes of host memory the model uses, for its statistics. Each call
// replaces the previous value.
func (e *ModelEnv) ReportMemory(bytes int64) { e.host.ReportMemory(bytes) }

// InstanceEnv describes an instance.
type InstanceEnv struct {
	Name             string
	Kind             string // "CPU", "GPU" or "MODEL"
	Device           int32  // the number of its GPU, 0 elsewhere
	Profiles         []string
	SecondaryDevices []SecondaryDevice
	Passive          bool   // it gets no requests
	HostPolicy       string // JSON: {"<policy>":{"<setting>":"<value>"}}
	Model            *ModelEnv
	Statistics       Statistics
	Log              *slog.Logger
}

// SecondaryDevice is another device in a group's config.
type SecondaryDevice struct {
	Kind   string
	Device int64
}

// Times are the times of an execution, in ns of Now and ascending.
type Times struct {
	ExecStart    int64 // Execute was called
	ComputeStart int64 // the computation had its inputs
	ComputeEnd   int64 // it had its outputs
	ExecEnd      int64 // the responses had been sent
}

// Statistics receives an instance's reports about its executions. The published times are those of
// the batch, else those of its first request, else those of the call of Execute, all of it as
// computation. The server counts requests and batch sizes itself. A request whose response is an
// error counts as failed, unless the backend reports otherwise.
//
// Reports are accepted until Execute returns; for sequence models, until all requests are released.
type Statistics interface {
	// Request reports one request, before its release.
	Request(request *Request, success bool, times Times) error
	// Batch reports the executed batch: its number of items and its times.
	Batch(size int, times Times) error
	// Response reports one response of a decoupled model, for response_stats: its index among the
	// responses of its request, the times at which it was begun, its output was begun (0: no output)
	// and it was sent, and its error.
	Response(factory *ResponseFactory, index int, start, outputStart, end int64, err error) error
}
