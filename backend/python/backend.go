package python

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Environment is what the backend is given by the rooms that start it.
type Environment struct {
	Config Config
	// Requests is the server's pool for the tensors of requests. The caller
	// closes it after the backend.
	Requests *shm.Pool
	// Files are the trees of the stub's Python files.
	Files []fs.FS
	Log   zerolog.Logger
	// Stdout and Stderr get what models print, a whole line with each call, from
	// several goroutines. Their Write must not wait. Nil: it goes to the log.
	Stdout, Stderr io.Writer
	// LogLevels tells the stubs which levels are worth sending.
	LogLevels func() LogLevels
	Metrics   Metrics
	// HostPolicies say where instances run.
	HostPolicies HostPolicies
	// Memory is charged for what stubs reserve, and for copies of outputs where
	// clients hold many; nil: neither is.
	Memory *memory.Account
	// SoleParent says that nothing else in this process waits for children: then all
	// that come home to it are reaped, whoever has started them.
	SoleParent bool
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
	ProtocolError(rule string)
	// Custom returns what holds the metrics that a new life of the model makes.
	Custom(model string) *metrics.Holder
}

// Backend starts stubs for the models that name backend "python".
type Backend struct {
	config    Config
	requests  *shm.Pool
	requestFD *os.File // read-only, for the stubs
	log       zerolog.Logger
	levels    func() LogLevels
	metrics   Metrics
	policies  HostPolicies
	output    [2]io.Writer   // stdout and stderr of this process
	dir       string         // the unpacked Python files
	signals   chan os.Signal // sent to by the runtime, closed by Close
	closing   sync.WaitGroup // what Close waits for

	token  string        // what the marks of all its processes begin with
	marks  atomic.Uint64 // that have been given
	census census

	account    *memory.Account
	instances  atomic.Int64 // that run, whether their stub lives or not
	soleParent bool
	// births is held for reading while a process is started, until it is watched.
	births sync.RWMutex

	pythons struct {
		sync.Mutex
		byWish map[wish]*python
	}
	live struct {
		sync.Mutex
		processes map[*process]struct{}
		lives     map[*life]struct{} // that log
	}
}

// New makes the backend. No process is started before the first model is
// opened.
func New(env Environment) (*Backend, error) {
	dir, err := unpack(env.Files...)
	if err != nil {
		return nil, err
	}
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	fd, err := env.Requests.Region().OpenReadOnly()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		config: env.Config, requests: env.Requests, requestFD: fd, log: env.Log, levels: env.LogLevels,
		metrics: env.Metrics, dir: dir, signals: make(chan os.Signal, 1),
		token: newToken(), account: env.Memory, soleParent: env.SoleParent, policies: env.HostPolicies,
		output: [2]io.Writer{env.Stdout, env.Stderr},
	}
	b.live.processes = make(map[*process]struct{})
	b.live.lives = make(map[*life]struct{})
	b.pythons.byWish = make(map[wish]*python)
	// Children of stubs whose parents have ended come home to this process; each
	// SIGCHLD is a reason to look for those that have ended too.
	signal.Notify(b.signals, unix.SIGCHLD)
	b.closing.Go(boundary.Guard(b.log, boundary.Life, func() {
		for range b.signals {
			boundary.Guard(b.log, boundary.Life, b.reapAll, nil)()
		}
	}, nil))
	return b, nil
}

// reapAll takes all processes that have ended.
func (b *Backend) reapAll() {
	b.reapLive()
	b.reapOrphans()
}

func (b *Backend) reapLive() {
	b.live.Lock()
	defer b.live.Unlock()
	for p := range b.live.processes {
		p.reap()
	}
}

// later has Close wait for f, which runs beside.
func (b *Backend) later(f func()) {
	b.closing.Go(boundary.Guard(b.log, boundary.Life, f, nil))
}

var _ backend.Backend = (*Backend)(nil)

// Interpreter finds the interpreter that all models use whose settings name no
// other, once, and says what it is.
func (b *Backend) Interpreter() (python, numpy, path string, err error) {
	t, err := b.python(&b.config).template()
	if err != nil {
		return "", "", "", err
	}
	return t.interpreter.Python, t.interpreter.Numpy, t.interpreter.Path, nil
}

func (b *Backend) watch(p *process) {
	b.live.Lock()
	b.live.processes[p] = struct{}{}
	b.live.Unlock()
}

func (b *Backend) unwatch(p *process) {
	b.live.Lock()
	delete(b.live.processes, p)
	b.live.Unlock()
}

// Open implements backend.Backend.
func (b *Backend) Open(env backend.Env) (backend.Model, error) { return b.open(env) }

// Close ends the templates. All models must have been closed.
func (b *Backend) Close() {
	b.pythons.Lock()
	for _, p := range b.pythons.byWish {
		p.close()
	}
	b.pythons.Unlock()
	signal.Stop(b.signals)
	close(b.signals)
	b.closing.Wait()
	b.killMarked(b.token)
	_ = b.requestFD.Close()
}

// printed says where the lines go that a model prints to stdout and stderr; nil
// is the log.
func (b *Backend) printed(c *Config) [2]io.Writer {
	if c.TaggedOutput {
		return [2]io.Writer{}
	}
	return b.output
}

// requestsFile returns a descriptor of the requests file of its own for a stub.
func (b *Backend) requestsFile() (*os.File, error) {
	fd, err := unix.FcntlInt(b.requestFD.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate requests file", err)
	}
	return os.NewFile(uintptr(fd), "requests"), nil
}

var errStopped = errors.New("instance is stopped")
