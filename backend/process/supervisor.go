package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/cores"
	"github.com/nereid-serving/nereid/backend/process/cudaipc"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Environment is what a Supervisor is given by the packages that start it.
type Environment struct {
	// Requests is the server's pool for the tensors of requests. The caller
	// closes it after the Supervisor.
	Requests *shm.Pool
	Log      zerolog.Logger
	// Stdout and Stderr get what models print, a whole line with each call, from
	// several goroutines. Their Write must not wait. Nil: it goes to the log.
	Stdout, Stderr io.Writer
	// LogLevels tells the stubs which levels are worth sending.
	LogLevels func() LogLevels
	Metrics   Metrics
	Limits    Limits
	// HostPolicies say where instances run.
	HostPolicies cores.HostPolicies
	// Memory is charged for what stubs reserve, and for copies of outputs where
	// clients hold many; nil: neither is.
	Memory *budget.Account
	// SoleParent says that nothing else in this process waits for children: then all
	// that come home to it are reaped, also the children of other code.
	SoleParent bool
	// Admit says whether a GPU has room for an instance that has been brought up there; nil:
	// all have.
	Admit func(gpu int32) bool
	// ClientRegions lets stubs map regions of clients: each gets a socket for their descriptors.
	ClientRegions bool
}

// LogLevels are the server's log switches.
type LogLevels struct {
	Info    bool `msgpack:"info"`
	Warning bool `msgpack:"warning"`
	Error   bool `msgpack:"error"`
	Verbose int  `msgpack:"verbose"`
}

// Metrics counts what happens to stubs. All methods may be called from any
// goroutine.
type Metrics interface {
	StubStarted(model string)
	StubLost(model, cause string)
	// StubRestarted is told, beside StubStarted, of a stub in place of one that was lost.
	StubRestarted(model string)
	ProtocolError(rule string)
	// Custom returns what holds the metrics that a new life of the model makes.
	Custom(model string) *metrics.Holder
}

// Supervisor hosts the models of all backends whose instances are processes of ours.
// This process has one.
type Supervisor struct {
	children  *launch.Children
	requests  *shm.Pool
	requestFD *os.File // read-only, for the stubs
	log       zerolog.Logger
	levels    func() LogLevels
	metrics   Metrics
	policies  cores.HostPolicies
	limits    Limits
	output    [2]io.Writer // stdout and stderr of this process
	account   *budget.Account
	named     shm.NamedFiles
	regions   bool           // of clients may be mapped
	copier    cudaipc.Copier // nil: there are no devices
	admit     func(gpu int32) bool
	instances atomic.Int64 // that run, whether their stub lives or not
	// tight is held while a frame is read for which there was no room.
	tight sync.Mutex

	mu    sync.Mutex
	lives map[*life]struct{}     // that are told of log levels
	kept  map[*Instance]struct{} // whose Run has not returned
}

// New makes the supervisor. It starts no process.
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
	return &Supervisor{
		children: children, requests: env.Requests, requestFD: fd, log: env.Log, levels: env.LogLevels,
		metrics: env.Metrics, account: env.Memory, policies: env.HostPolicies, limits: env.Limits.WithDefaults(),
		output: [2]io.Writer{env.Stdout, env.Stderr}, regions: env.ClientRegions, admit: env.Admit, lives: make(map[*life]struct{}), kept: make(map[*Instance]struct{}),
	}, nil
}

// SetCopier says that there are devices, and what copies tensors from them for models that do not
// take them there. It is called before a model is opened; the copier is closed after the models.
func (s *Supervisor) SetCopier(copier cudaipc.Copier) { s.copier = copier }

// Children returns the roster of processes, in which backends start theirs.
func (s *Supervisor) Children() *launch.Children { return s.children }

// OwnsFile reports whether a file is that of a region which a stub has still to open by
// its name.
func (s *Supervisor) OwnsFile(device, inode uint64) bool { return s.named.Has(device, inode) }

// KillAll ends all stubs at once, with what they have started.
func (s *Supervisor) KillAll() { s.children.KillAll() }

// Close ends what models have left behind. All models and backends must have been
// closed.
func (s *Supervisor) Close() {
	s.children.Close()
	_ = s.requestFD.Close()
}

// Open makes a model version, whose instances run program. Config may not change
// while the model is used.
func (s *Supervisor) Open(env backend.Env, config *Config, program Program) *Model {
	m := &Model{
		supervisor: s, env: env, settings: config, program: program,
		log: s.log.With().Str("model", env.Name).Int64("version", env.Version).Logger(),
	}
	m.setShares()
	return m
}

// printed says where the lines go that a model prints to stdout and stderr; nil
// is the log.
func (s *Supervisor) printed(c *Config) [2]io.Writer {
	if c.TaggedOutput {
		return [2]io.Writer{}
	}
	return s.output
}

// requestsFile returns a descriptor of the requests file of its own for a stub.
func (s *Supervisor) requestsFile() (*os.File, error) {
	fd, err := unix.FcntlInt(s.requestFD.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate requests file", err)
	}
	return os.NewFile(uintptr(fd), "requests"), nil
}

// chargeArena has the account decide what a stub may reserve beyond what it keeps
// while it is idle.
func (s *Supervisor) chargeArena(c *ipc.Config, holder *budget.Holder) {
	account := s.account
	if account == nil {
		return
	}
	c.MaxArena = min(c.MaxArena, max(account.Most(budget.Arenas), c.FreeArena))
	c.Charge = func(n int64) bool {
		return account.Take(budget.Arenas, n) == nil && holder.Hold(budget.Arenas, n) == nil // which has no bound there
	}
	c.Refund = func(n int64) {
		account.Give(budget.Arenas, n)
		holder.Drop(budget.Arenas, n)
	}
}

// stubDescriptors is more than what a stub takes of the descriptors of this
// process: nine while it runs, and about as many while it starts.
const stubDescriptors = 20

// Descriptors returns how many descriptors are to be kept for stubs that are to be
// started: those of instances that have lost theirs, and two more.
func (s *Supervisor) Descriptors() int {
	return stubDescriptors * (2 + max(0, int(s.instances.Load())-s.children.Count()))
}

var errStopped = errors.New("instance is stopped")
