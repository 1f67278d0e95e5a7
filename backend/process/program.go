package process

import (
	"context"
	"os"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/kserve"
)

// Program is what the processes of one model version run. It is all that a backend
// adds to the hosting of processes. Its methods may be called concurrently, but for
// Configure and Close.
type Program interface {
	// Check makes what the processes need and refuses a model whose processes cannot be
	// started, before the first of them is, and before more of them are. It may take as long
	// as ctx, which is the load's. instance, "" if it is not known, is what the error's text
	// names.
	Check(ctx context.Context, instance string) error
	// Configure is told the final config, once, before any instance is started with it.
	Configure(config *kserve.ModelConfig) error
	// Start starts a process for an instance by Children.Bear. It may wait for what the process says
	// first, no longer than ctx, and has reaped the process when it returns an error. The files are the
	// caller's, which closes them afterwards; the process has descriptors of its own. What comes on
	// files.Output is read meanwhile.
	Start(ctx context.Context, instance string, files *Files) (*launch.Process, error)
	// Complete makes the body of AUTO_COMPLETE, a struct with fields for msgpack. Config
	// is the model's, as JSON.
	Complete(config []byte, surroundings Surroundings) any
	// Initialize makes the body of INITIALIZE for a process of an instance.
	Initialize(placement Placement, initialization Initialization) any
	// Text is what clients and models are told of a fault.
	Text(fault Fault, subject string) string
	// Close gives up what Open's caller and Check have taken. It is called once, when the
	// model is closed and none of its processes is left.
	Close()
}

// Timekeeper is a Program whose processes say themselves when a batch was computed, in EXECUTED. Of others the
// hosting knows when it sent the batch and when the answer came.
type Timekeeper interface{ KeepsTime() }

// Files are what a process inherits. Down, Up and the bells of the peer, the requests
// and the lifeline are known to it by their numbers alone.
type Files struct {
	Peer     ipc.PeerFiles
	Requests *os.File
	Output   [2]*os.File // become stdout and stderr
	// Regions is the socket by which descriptors of clients' regions come; nil: none does.
	Regions *os.File
}

// List returns the files in the order in which a process is told their numbers.
func (f *Files) List() []*os.File {
	list := []*os.File{f.Peer.Down, f.Peer.Up, f.Requests, f.Peer.DownBell, f.Peer.UpBell, f.Peer.Lifeline}
	if f.Regions != nil {
		list = append(list, f.Regions)
	}
	return list
}

func (f *Files) close() {
	f.Peer.Close()
	for _, file := range []*os.File{f.Requests, f.Output[0], f.Output[1], f.Regions} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Placement says for which instance a process is started.
type Placement struct {
	Instance string
	Kind     string // "CPU", "GPU" or "MODEL"
	Device   string // the number of a GPU, "0" elsewhere
	Config   []byte // the model's, as JSON
	// Group is that of the config to which the instance belongs, and HostPolicy the settings of its
	// host policy, as JSON.
	Group      *kserve.ModelInstanceGroup
	HostPolicy string
}

// Tensors are the names of a model's tensors, inputs first, and whether it may send any
// number of responses.
type Tensors struct {
	Names     []string `msgpack:"names"`
	Inputs    int      `msgpack:"inputs"`
	Outputs   int      `msgpack:"outputs"`
	Decoupled bool     `msgpack:"decoupled"`
}

// Surroundings is what AUTO_COMPLETE and INITIALIZE say of the server and the session.
type Surroundings struct {
	Log     LogLevels `msgpack:"log"`
	Spin    int64     `msgpack:"spin_us"`
	Default int64     `msgpack:"default_bytes"`
	Growth  int64     `msgpack:"growth_bytes"`
	Max     int64     `msgpack:"max_bytes"`
}

// Windows is how much of one request may be out, sent and not credited.
type Windows struct {
	Responses int   `msgpack:"window_responses"`
	Bytes     int64 `msgpack:"window_bytes"`
}

// Initialization is what INITIALIZE says whatever the program is. Its parts are
// embedded in the program's own body.
type Initialization struct {
	Tensors
	Surroundings
	Windows
}

// Fault is what clients and models are told of in the program's own words.
type Fault uint8

// The faults, and what the subject of each is.
const (
	// ProcessLost: the process that had the request was lost; the instance.
	ProcessLost Fault = 1
	// ReadyLate and SharedReadyLate: the model did not say in time whether it is ready,
	// when it was asked, or had been asked before; the instance.
	ReadyLate       Fault = 2
	SharedReadyLate Fault = 3
	// ReadyLost: the process was lost while it was asked whether the model is ready;
	// the instance.
	ReadyLost Fault = 4
	// NotReady: the model said that it is not ready; the instance.
	NotReady Fault = 5
	// OneResponseWanted: a model made a BLS request for one response of a model that
	// may send any number; the latter.
	OneResponseWanted Fault = 6
	// LeastMemory is a sentence behind the report that there is no shared memory for a
	// process: how much it needs at least; the instance.
	LeastMemory Fault = 7
)

// fault is an error about an instance in the words of its program.
func (in *Instance) fault(code infer.Code, fault Fault) *infer.Error {
	return &infer.Error{Code: code, Message: in.model.program.Text(fault, in.name)}
}

// unhealthy is what the requests in flight in a lost stub are answered with.
func (in *Instance) unhealthy() *infer.Error { return in.fault(infer.Internal, ProcessLost) }
