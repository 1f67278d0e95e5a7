package sdk

import (
	"log/slog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
)

// Now returns nanoseconds of the one clock that times of statistics are read from.
func Now() int64 { return backend.Now() }

// ModelEnv is what a model version knows of itself and its server. Its methods and fields may be used by any
// goroutine, until Model.Close has returned.
type ModelEnv struct {
	Name      string
	Version   int64
	Directory string // of the model; Directory/Version has the files of this version
	// AutoComplete: the config may be completed, by SetConfig.
	AutoComplete bool
	Backend      *BackendEnv
	Server       Server
	Metrics      Metrics
	Log          *slog.Logger

	host ModelHost
}

// ModelHost is what stands behind a ModelEnv. Package engine implements it; tests of backends may.
type ModelHost interface {
	Config() *kserve.ModelConfig
	ConfigJSON() []byte
	SetConfig(config *kserve.ModelConfig) error
	ReportMemory(bytes int64)
}

// NewModelEnv returns a copy of env with host behind it. Backends do not call it, but their tests may.
func NewModelEnv(env ModelEnv, host ModelHost) *ModelEnv {
	env.host = host
	return &env
}

// Config returns the model's config, normalised. In NewModel it is what its user has written, or SetConfig has made
// of it; for instances it is the final one. It is not changed: SetConfig takes a changed copy (proto.Clone).
func (e *ModelEnv) Config() *kserve.ModelConfig { return e.host.Config() }

// ConfigJSON returns the config as JSON, in the form of the config endpoint.
func (e *ModelEnv) ConfigJSON() []byte { return e.host.ConfigJSON() }

// SetConfig completes the config. It may be called inside NewModel alone, and where AutoComplete is true. Of the
// config that is given, the server takes max_batch_size, inputs and outputs; the scheduler if the user has chosen none; and
// whether the model is decoupled. What is wrong with it ends the load after NewModel has returned.
func (e *ModelEnv) SetConfig(config *kserve.ModelConfig) error { return e.host.SetConfig(config) }

// ReportMemory tells how many bytes of the machine's memory the model keeps, for its statistics. Each call takes the
// place of the one before.
func (e *ModelEnv) ReportMemory(bytes int64) { e.host.ReportMemory(bytes) }

// InstanceEnv is what an instance knows of itself.
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

// SecondaryDevice is one of the devices that a group's config names beside its own.
type SecondaryDevice struct {
	Kind   string
	Device int64
}

// Times are those of an execution, in ns of Now and in order.
type Times struct {
	ExecStart    int64 // Execute was called
	ComputeStart int64 // the computation had its inputs
	ComputeEnd   int64 // it had its outputs
	ExecEnd      int64 // the responses had been sent
}

// Statistics takes what an instance reports of its executions. The times of the batch are shown; those of its first request
// if none were reported; and of a backend that reports nothing, those between the call of Execute and its return, all of it as
// computation. The server counts requests and batch sizes itself. A request whose response is an error has failed, unless the
// backend reports otherwise.
//
// What Execute reports counts. What is reported after it has returned comes too late, except of sequence models, whose
// executions end with the release of their requests.
type Statistics interface {
	// Request reports one request, before its release.
	Request(request *Request, success bool, times Times) error
	// Batch reports the batch that is executed: how many items it had, and when.
	Batch(size int, times Times) error
	// Response reports one response of a decoupled model, for response_stats: its index among those of its request, when it was begun, when its output was begun (0: it
	// has none), when it was sent, and its error.
	Response(factory *ResponseFactory, index int, start, outputStart, end int64, err error) error
}
