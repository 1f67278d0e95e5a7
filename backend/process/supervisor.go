package process

import (
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/hostcalls"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/bounds"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/shm"
)

// Environment is the configuration of a Supervisor.
type Environment struct {
	// Requests is the server's pool for tensors of requests. The caller closes it after the
	// Supervisor.
	Requests *shm.Pool
	Log      zerolog.Logger
	// Stdout and Stderr receive the models' output, one whole line with each call, from several
	// goroutines. Their Write must not wait. With nil, output goes to the log.
	Stdout, Stderr io.Writer
	// LogLevels returns the levels that stubs should send.
	LogLevels func() LogLevels
	Metrics   Metrics
	Limits    Limits
	// HostPolicies choose the cores of instances.
	HostPolicies placement.HostPolicies
	// Memory is charged for the memory that stubs reserve, and for copies of outputs while clients
	// hold many; nil charges nothing.
	Memory *budget.Account
	// SoleParent reports that no other code in this process waits for children. Then all reparented
	// children are reaped, including those of other code.
	SoleParent bool
	// Admit reports whether a GPU has room for an instance that has been started there; nil admits
	// all.
	Admit func(gpu int32) bool
	// ClientRegions lets stubs map regions of clients. Each stub gets a socket for their
	// descriptors.
	ClientRegions bool
}

// LogLevels are the server's log switches.
type LogLevels struct {
	Info    bool `msgpack:"info"`
	Warning bool `msgpack:"warning"`
	Error   bool `msgpack:"error"`
	Verbose int  `msgpack:"verbose"`
}

// Metrics counts events of stubs. Any goroutine may call its methods.
type Metrics interface {
	StubStarted(model string)
	StubLost(model, cause string)
	// StubRestarted is called, in addition to StubStarted, for a stub that replaces a lost one.
	StubRestarted(model string)
	ProtocolError(rule string)
	// Custom returns the holder of the metrics that a new life of the model creates.
	Custom(model string) *metrics.Holder
}

// Supervisor hosts the models of all backends whose instances are child processes. The server has
// one.
type Supervisor struct {
	children  *launch.Children
	requests  *shm.Pool
	requestFD *os.File // read-only, for the stubs
	log       zerolog.Logger
	levels    func() LogLevels
	metrics   Metrics
	policies  placement.HostPolicies
	limits    Limits
	output    [2]io.Writer // stdout and stderr of this process
	account   *budget.Account
	named     shm.NamedFiles
	regions   bool           // clients' regions may be mapped
	copier    cudaipc.Copier // nil without devices
	admit     func(gpu int32) bool
	instances atomic.Int64 // running instances, with or without a live stub
	joined    atomic.Int64 // lives that run in the process of another one
	// tight is held while a frame is read for which there was no memory.
	tight sync.Mutex

	mu    sync.Mutex
	lives map[*life]struct{}     // lives that receive log levels
	kept  map[*Instance]struct{} // instances whose Run has not returned
}

// New creates the supervisor. It starts no process.
func New(env Environment) (*Supervisor, error) {
	fd, err := env.Requests.Region().OpenReadOnly()
	if err != nil {
		return nil, err
	}
	children, err := launch.NewChildren(env.Log, env.SoleParent)
	if err != nil {
		_ = fd.Close()
		return nil, err
	}
	env.Limits.Bounds().SetDefaults()
	return &Supervisor{
		children: children, requests: env.Requests, requestFD: fd, log: env.Log, levels: env.LogLevels,
		metrics: env.Metrics, account: env.Memory, policies: env.HostPolicies, limits: env.Limits,
		output: [2]io.Writer{env.Stdout, env.Stderr}, regions: env.ClientRegions, admit: env.Admit, lives: make(map[*life]struct{}), kept: make(map[*Instance]struct{}),
	}, nil
}

// SetCopier sets the copier of tensors from devices, for models that do not take them there. It is
// called before a model is opened; the copier is closed after the models.
func (s *Supervisor) SetCopier(copier cudaipc.Copier) { s.copier = copier }

// Children returns the table of child processes, in which backends start theirs.
func (s *Supervisor) Children() *launch.Children { return s.children }

// Memory returns the account that is charged for the models, or nil.
func (s *Supervisor) Memory() *budget.Account { return s.account }

// OwnsFile reports whether a file is a region that a stub has yet to open by its name.
func (s *Supervisor) OwnsFile(device, inode uint64) bool { return s.named.Has(device, inode) }

// KillAll kills all stubs and their descendants.
func (s *Supervisor) KillAll() { s.children.KillAll() }

// Close ends everything that models have left behind. All models and backends must be closed
// before.
func (s *Supervisor) Close() {
	s.children.Close()
	_ = s.requestFD.Close()
}

// Open creates a model version whose instances run program. config must not change while the model
// is used.
func (s *Supervisor) Open(env backend.Env, config *Config, program Program) *Model {
	m := &Model{
		supervisor: s, env: env, settings: config, program: program,
		log: s.log.With().Str("model", env.Name).Int64("version", env.Version).Logger(),
	}
	m.setShares()
	return m
}

// printed returns the destinations of a model's stdout and stderr; nil is the log.
func (s *Supervisor) printed(c *Config) [2]io.Writer {
	if c.TaggedOutput {
		return [2]io.Writer{}
	}
	return s.output
}

// requestsFile returns a new descriptor of the requests file for a stub.
func (s *Supervisor) requestsFile() (*os.File, error) {
	fd, err := unix.FcntlInt(s.requestFD.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate requests file", err)
	}
	return os.NewFile(uintptr(fd), "requests"), nil
}

// stubDescriptors is an upper bound of the descriptors of this process for one stub: nine while it
// runs, and about as many while it starts.
const stubDescriptors = 20

// Descriptors returns the number of descriptors to reserve for stubs that will be started: those of
// instances that have lost theirs, and two more.
func (s *Supervisor) Descriptors() int {
	return stubDescriptors * (2 + max(0, int(s.instances.Load()-s.joined.Load())-s.children.Count()))
}

var errStopped = errors.New("instance is stopped")

// Limits limit the server's resources for models and their processes. 0 stands for the default of
// each.
type Limits struct {
	Instances int              // processes of one model
	Output    output.Limits    // of the output of one process, and again of its model's log messages
	Calls     hostcalls.Limits // of the host calls of one process
	// MemoryShare is the percentage of each kind of memory that the server holds for one version of
	// a model: tensors that it keeps, outputs, responses that wait, strings and frames.
	MemoryShare int
}

// Bounds lists the limits with their defaults and bounds.
func (l *Limits) Bounds() bounds.Table {
	return slices.Concat(bounds.Table{
		bounds.Of("Instances", &l.Instances, 4096, 1, math.MaxInt32),
		bounds.Of("MemoryShare", &l.MemoryShare, 50, 1, 100),
	}, l.Output.Bounds().Under("Output"), l.Calls.Bounds().Under("Calls")) // bound: the fields
}

// maxMessageLines limits the size of one LOG message, in lines of maximum length. A long traceback
// is worth its space, and counts as that many lines.
const maxMessageLines = 16

// Limits of the request ids that a log line of a batch shows.
const (
	maxShownRequests = 32
	maxShownID       = 128 // bytes
)

// logged handles LOG: a message of a model, or of its stub.
func (l *life) logged(f ipc.Frame) error {
	var body struct {
		Level   int    `msgpack:"level"`
		File    string `msgpack:"file"`
		Line    int    `msgpack:"line"`
		Message string `msgpack:"message"`
		// Own marks a message of the stub itself, and Batch the batch that it concerns.
		Own   bool   `msgpack:"own"`
		Batch uint64 `msgpack:"batch"`
		// Once is the subject of a message that is logged once for all instances.
		Once string `msgpack:"once"`
	}
	charged, err := frames.DecodeMap(l.quota.heap, f, &body)
	defer l.quota.heap.Give(charged)
	if err != nil {
		if frames.Refusal(err) != nil { // the message is lost
			return nil
		}
		return err
	}
	log := l.in.model.supervisor.log
	if body.Own {
		log = l.in.log
	}
	// A model's message is logged word for word, without fields.
	event := log.Info()
	switch body.Level {
	case 0:
	case 1:
		event = log.Warn()
	case 2:
		event = log.Error()
	case 3:
		event = log.Debug()
	default:
		event.Discard()
		return ipc.Broken("frame", "level of LOG is %d", body.Level)
	}
	if body.Once != "" && !l.in.model.saysFirst(body.Once) {
		return nil
	}
	most := l.in.model.supervisor.limits.Output.LineBytes
	text := output.CutAt(body.Message, maxMessageLines*most)
	if !l.logLimit.Allow(log, 1+len(text)/most) {
		return nil
	}
	event = event.Str("file", output.Cut(body.File)).Int("line", body.Line)
	if ids := l.requestsOf(body.Batch); len(ids) > 0 {
		event = event.Strs("requests", ids)
	}
	event.Msg(text)
	return nil
}

// Limits of the texts that a model has logged once. Beyond maxSaid further ones are not logged;
// texts with the same first maxSaidText bytes count as one.
const (
	maxSaid     = 256
	maxSaidText = 1 << 10 // bytes
)

// saysFirst reports whether no instance of the model has logged something about this subject
// before.
func (m *Model) saysFirst(what string) bool {
	what = infer.Cut(what, maxSaidText)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.said[what] || len(m.said) == maxSaid {
		return false
	}
	if m.said == nil {
		m.said = make(map[string]bool)
	}
	m.said[what] = true // bound: maxSaid and maxSaidText
	return true
}

// LogLevelsChanged tells the stubs which levels to send from now on. Calls do not overlap.
func (s *Supervisor) LogLevelsChanged() {
	s.mu.Lock()
	var lives []*life // bound: the processes
	for l := range s.lives {
		lives = append(lives, l) // bound: the processes
	}
	s.mu.Unlock()
	for _, l := range lives {
		// The life may have ended.
		if err := l.ask(ipc.LogSettings, s.levels()); err != nil {
			l.in.log.Debug().Err(err).Msg("log settings were not sent")
		}
	}
}

// hear adds the life to the receivers of log levels, or removes it.
func (l *life) hear(yes bool) {
	s := l.in.model.supervisor
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.lives[l] = struct{}{} // bound: the processes
	} else {
		delete(s.lives, l)
	}
}
