package native

import (
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
)

// Environment is the configuration of the backend.
type Environment struct {
	// Supervisor hosts the models. The caller closes it when all models are closed.
	Supervisor *process.Supervisor
	// Settings returns the settings of a named backend: the merged settings of the command line,
	// and the same in the form of Triton's backends, as JSON.
	Settings func(name string) (values map[string]string, message string)
	// Directory contains the operator's backends, each in a folder of its name.
	Directory string
	Log       zerolog.Logger
}

// Backend opens models whose backend is a plugin.
type Backend struct {
	env Environment

	mu    sync.Mutex
	known map[string]*known // by name of the backend; bound: mostKnown
}

// known holds the settings of a backend, as of its first model.
type known struct {
	config  Config
	values  map[string]string
	message string
	err     error // of the settings; every model gets it
}

// New returns the backend. No process is started before the first model is opened.
func New(env Environment) *Backend { return &Backend{env: env, known: make(map[string]*known)} }

var _ backend.Backend = (*Backend)(nil)

// Open implements backend.Backend.
func (b *Backend) Open(env backend.Env) (backend.Model, error) {
	name := env.Config.GetBackend()
	k := b.of(name)
	if k.err != nil {
		return nil, k.err
	}
	p := &program{
		backend: b, name: name, path: env.Plugin, env: env, known: k, taking: k.config.StubTimeout,
		log: b.env.Log.With().Str("backend", name).Str("model", env.Name).Int64("version", env.Version).Logger(),
	}
	return b.env.Supervisor.Open(env, &k.config.Config, p), nil
}

// mostKnown bounds the number of remembered backends, because uploaded models can name new ones
// forever.
const mostKnown = 1000

// of returns the settings of a backend.
func (b *Backend) of(name string) *known {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.known[name]; k != nil {
		return k
	}
	if len(b.known) >= mostKnown {
		clear(b.known) // they are read again
	}
	k := &known{}
	k.values, k.message = b.env.Settings(name)
	k.config, k.err = ParseConfig(k.values)
	b.known[name] = k
	return k
}

// roots returns the directories that must not be left by links to a model's program: the model's
// repository and the operator's directory.
func (p *program) roots() []string {
	return []string{filepath.Dir(p.env.Directory), p.env.Directory, filepath.Dir(p.path), p.backend.env.Directory}
}
