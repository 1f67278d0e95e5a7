package process

import (
	"context"
	"os"
	"time"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/shm"
)

// Program describes the processes of one model version. It is everything that a backend adds to the
// hosting of processes. Its methods may be called concurrently, except Configure and Close.
type Program interface {
	// Check prepares the resources that the processes need, and rejects a model whose processes
	// cannot be started. It is called before the first process is started, and before more are. It
	// may take as long as ctx, the load's context. instance is the name for error texts, "" if
	// unknown.
	Check(ctx context.Context, instance string) error
	// Configure receives the final config, once, before any instance is started with it.
	Configure(config *kserve.ModelConfig) error
	// Start starts a process for an instance by Children.Bear. It may wait for the first message of
	// the process, no longer than ctx, and has reaped the process when it returns an error. The
	// caller closes the files afterwards; the process has its own descriptors. files.Output is read
	// meanwhile.
	Start(ctx context.Context, instance string, files *Files) (*launch.Process, error)
	// Complete returns the body of AUTO_COMPLETE, a struct with msgpack fields. config is the
	// model's, as JSON.
	Complete(config []byte, surroundings Surroundings) any
	// Initialize returns the body of INITIALIZE for a process of an instance.
	Initialize(instance InstanceSpec, initialization Initialization) any
	// Capabilities returns the optional abilities of the processes.
	Capabilities() ProgramCapabilities
	// Text returns the text of a fault for clients and models.
	Text(fault Fault, subject string) string
	// Close releases the resources of Open's caller and of Check. It is called once, when the model
	// is closed and none of its processes is left.
	Close()
}

// ProgramCapabilities are the optional abilities of a program's processes.
type ProgramCapabilities struct {
	// ReportsTimes: the processes report the times of a batch themselves, in EXECUTED. For other
	// programs the server uses the times of its own frames.
	ReportsTimes bool
	// UsesDevices: the processes write outputs to clients' device memory, and read inputs there if
	// TakesDevices is set, which is known once the config is final.
	UsesDevices, TakesDevices bool
	// SharesProcess: one process runs all instances of a group as threads. It is known after Check.
	SharesProcess bool
}

// Files are the descriptors that a process inherits. It knows Down, Up, Requests, the bells and the
// lifeline only by their numbers.
type Files struct {
	Peer     ipc.PeerFiles
	Requests *os.File
	Output   [2]*os.File // become stdout and stderr
	// Regions is the socket for descriptors of clients' regions; nil without one.
	Regions *os.File
	// Joins is the socket by which further instances join a shared process. Each message has the
	// name of an instance and the files of List; end of file means that no more instances join. It
	// is nil unless the process is shared.
	Joins *os.File
}

// List returns the files in the order in which a process receives their numbers.
func (f *Files) List() []*os.File {
	list := []*os.File{f.Peer.Down, f.Peer.Up, f.Requests, f.Peer.DownBell, f.Peer.UpBell, f.Peer.Lifeline}
	if f.Regions != nil {
		list = append(list, f.Regions)
	}
	return list
}

func (f *Files) close() {
	f.Peer.Close()
	for _, file := range []*os.File{f.Requests, f.Output[0], f.Output[1], f.Regions, f.Joins} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// InstanceSpec describes the instance for which a process is started.
type InstanceSpec struct {
	Instance string
	Kind     string // "CPU", "GPU" or "MODEL"
	Device   string // the number of a GPU, "0" elsewhere
	Config   []byte // the model's, as JSON
	// Group is the instance's group in the config, and HostPolicy the settings of its host policy,
	// as JSON.
	Group      *kserve.ModelInstanceGroup
	HostPolicy string
}

// Tensors are the names of a model's tensors, inputs first, and whether it may send any number of
// responses to a request.
type Tensors struct {
	Names     []string `msgpack:"names"`
	Inputs    int      `msgpack:"inputs"`
	Outputs   int      `msgpack:"outputs"`
	Decoupled bool     `msgpack:"decoupled"`
}

// Surroundings is the description of the server and the session in AUTO_COMPLETE and INITIALIZE.
type Surroundings struct {
	Log     LogLevels `msgpack:"log"`
	Spin    int64     `msgpack:"spin_us"`
	Default int64     `msgpack:"default_bytes"`
	Growth  int64     `msgpack:"growth_bytes"`
	Max     int64     `msgpack:"max_bytes"`
}

// Window limits the uncredited responses of one request.
type Window struct {
	Responses int   `msgpack:"window_responses"`
	Bytes     int64 `msgpack:"window_bytes"`
}

// Initialization is the part of INITIALIZE that does not depend on the program. The program's own
// body embeds it.
type Initialization struct {
	Tensors
	Surroundings
	Window
}

// Fault is a fault that the program describes in its own words.
type Fault uint8

// The faults, and the subject of each.
const (
	// ProcessLost: the process that had the request was lost; the instance.
	ProcessLost Fault = 1
	// ReadyLate and SharedReadyLate: the model did not answer in time whether it is ready, when
	// this caller asked, or another caller had asked before; the instance.
	ReadyLate       Fault = 2
	SharedReadyLate Fault = 3
	// ReadyLost: the process was lost while the model was asked whether it is ready; the instance.
	ReadyLost Fault = 4
	// NotReady: the model said that it is not ready; the instance.
	NotReady Fault = 5
	// OneResponseWanted: a model made a BLS request for one response of a model that
	// may send any number; the latter.
	OneResponseWanted Fault = 6
	// LeastMemory is a sentence after the error that there is no shared memory for a process: the
	// minimum that it needs; the instance.
	LeastMemory Fault = 7
)

// fault returns an error about an instance in the words of its program.
func (in *Instance) fault(code infer.Code, fault Fault) *infer.Error {
	return &infer.Error{Code: code, Message: in.model.program.Text(fault, in.name)}
}

// unhealthy returns the error for requests in flight in a lost stub.
func (in *Instance) unhealthy() *infer.Error { return in.fault(infer.Internal, ProcessLost) }

// Config is a backend's settings for the processes of a model. Sizes are in bytes. The zero value
// of a duration means no limit.
type Config struct {
	// DefaultBytes is the initial size of a stub's memory, at least 1 MiB, and GrowthBytes the step
	// by which it grows.
	DefaultBytes int64
	GrowthBytes  int64
	// MaxBytes limits a stub's memory. It is at least DefaultBytes.
	MaxBytes int64
	// RegionPrefix makes named regions; "" makes unnamed ones.
	RegionPrefix string
	// StubTimeout limits the time from the start of a stub process to HELLO; the model's own code
	// is not part of it. It is more than 0.
	StubTimeout time.Duration
	// InitializeTimeout limits the response to INITIALIZE, ExecuteTimeout the one to EXECUTE, and
	// FinalizeTimeout the one to FINALIZE.
	InitializeTimeout time.Duration
	ExecuteTimeout    time.Duration
	FinalizeTimeout   time.Duration
	// UnloadTimeout limits the waiting when a model ends: for requests in flight, and for the
	// response to FINALIZE.
	UnloadTimeout time.Duration
	// Spin is the time for which a side looks for the other's frames before it sleeps; negative: it
	// does not.
	Spin time.Duration
	// ReadyTimeout limits the wait for the response to READY?; 0 means no limit.
	ReadyTimeout time.Duration
	// Grace is the time that a process gets, before it is ended by force, to finalize with requests
	// still open; 0: it is killed at once.
	Grace time.Duration
	// CopyRegions makes the server copy inputs in regions of clients; the processes map none.
	CopyRegions bool
	// TaggedOutput writes the models' output to the log, with the names of model, version and
	// instance.
	TaggedOutput bool
}

// Backing returns the kind of the regions. Named ones are entered in files while their names exist.
func (c *Config) Backing(files *shm.NamedFiles) shm.Backing {
	if c.RegionPrefix == "" {
		return shm.Memfd{}
	}
	return shm.Named{Prefix: c.RegionPrefix, Files: files}
}

// validateInstanceName rejects names that Triton rejects.
func validateInstanceName(name string) error {
	const refused = ";|&$`<>()[]{}\\\"'*?~#!"
	for i := range len(name) {
		for j := range len(refused) {
			if name[i] == refused[j] {
				return infer.Errorf(infer.InvalidArg, "Invalid stub name: contains invalid characters")
			}
		}
	}
	return nil
}
