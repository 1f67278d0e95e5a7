package python

import (
	"io/fs"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/rs/zerolog"
)

// Environment is what the backend is given by the packages that start it.
type Environment struct {
	// Supervisor hosts the models. The caller closes it after the backend.
	Supervisor *process.Supervisor
	Config     Config
	// Files are the trees of the stub's Python files.
	Files []fs.FS
	Log   zerolog.Logger
}

// Backend starts stubs for the models that name backend "python".
type Backend struct {
	supervisor *process.Supervisor
	config     Config
	log        zerolog.Logger
	dir        string // the unpacked Python files

	pythons struct {
		sync.Mutex
		byWish map[wish]*python
	}
}

// New makes the backend. No process is started before the first model is
// opened.
func New(env Environment) (*Backend, error) {
	dir, err := unpack(env.Files...)
	if err != nil {
		return nil, err
	}
	b := &Backend{supervisor: env.Supervisor, config: env.Config, log: env.Log, dir: dir}
	b.pythons.byWish = make(map[wish]*python)
	return b, nil
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

// Open implements backend.Backend.
func (b *Backend) Open(env backend.Env) (backend.Model, error) { return b.open(env) }

// Close ends the templates. All models must have been closed.
func (b *Backend) Close() {
	b.pythons.Lock()
	defer b.pythons.Unlock()
	for _, p := range b.pythons.byWish {
		p.close()
	}
}
