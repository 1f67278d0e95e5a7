package python

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/conda"
	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/rs/zerolog"
)

// Environment is the configuration of the backend.
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
		byWish map[wish]*python // bound: the models
	}
	cache struct {
		sync.Mutex
		opened   *cache.Cache           // nil until a model has a packed environment
		archives map[string]archiveSeen // bound: mostArchives
	}
}

// New returns the backend. No process is started before the first model is opened.
func New(env Environment) (*Backend, error) {
	dir, err := unpack(env.Files...)
	if err != nil {
		return nil, err
	}
	b := &Backend{supervisor: env.Supervisor, config: env.Config, log: env.Log, dir: dir}
	b.pythons.byWish = make(map[wish]*python)
	b.cache.archives = make(map[string]archiveSeen)
	return b, nil
}

var _ backend.Backend = (*Backend)(nil)

// Interpreter finds the interpreter of all models whose settings name no other, and describes it.
// It searches once.
func (b *Backend) Interpreter() (python, numpy, path string, err error) {
	i, err := b.hold(b.config.wish(), nil).find(context.Background()) // to the end
	return i.Python, i.Numpy, i.Path, err
}

// Directory returns the directory with the files of Environment.Files.
func (b *Backend) Directory() string { return b.dir }

// Interpreters lists the Pythons that may run a program of these files that does not need numpy:
// first that of the settings, then each python3 on PATH.
func (b *Backend) Interpreters() ([]string, error) {
	first, err := candidates(b.config.Executable)
	if b.config.Executable == "" {
		return first, err
	}
	others, _ := candidates("")          // that of the settings is tried before they are missed
	return append(first, others...), nil // bound: PATH
}

// Open implements backend.Backend.
func (b *Backend) Open(env backend.Env) (backend.Model, error) { return b.open(env) }

// hold returns the interpreter for a wish, held until release. environment is the environment of
// the wish, or nil.
func (b *Backend) hold(w wish, environment *conda.Environment) *python {
	b.pythons.Lock()
	defer b.pythons.Unlock()
	p := b.pythons.byWish[w]
	if p == nil {
		p = &python{backend: b, wish: w, environment: environment, variables: variablesIn(environment, w.pure)}
		b.pythons.byWish[w] = p
	}
	p.holders++
	return p
}

// release ends the template of an interpreter with its last holder, except for the server's own
// interpreter, which stays for the next model.
func (b *Backend) release(p *python) {
	b.pythons.Lock()
	p.holders--
	last := p.holders == 0 && p.wish != b.config.wish()
	if last {
		delete(b.pythons.byWish, p.wish)
	}
	b.pythons.Unlock()
	if last {
		p.close()
		b.keepOne()
	}
}

// rest ends the templates of interpreters that have started nothing for a while. The last template
// of this process stays, because it cleans up after models if this process is killed.
func (b *Backend) rest() {
	b.pythons.Lock()
	defer b.pythons.Unlock()
	living := 0
	for _, p := range b.pythons.byWish {
		if p.hasTemplate.Load() {
			living++
		}
	}
	for _, p := range b.pythons.byWish {
		if living < 2 {
			return
		}
		if t := p.takeIdle(); t != nil {
			living--
			b.supervisor.Children().Later(t.close)
		}
	}
}

// keepOne ensures that there is a template as long as there are models: see rest.
func (b *Backend) keepOne() {
	b.pythons.Lock()
	defer b.pythons.Unlock()
	var heir *python
	for _, p := range b.pythons.byWish {
		if p.hasTemplate.Load() {
			return
		}
		if p.isFound.Load() {
			heir = p
		}
	}
	if heir != nil {
		b.supervisor.Children().Later(heir.wake)
	}
}

// Close ends the templates and closes the cache of environments. All models must have been closed.
func (b *Backend) Close() {
	b.pythons.Lock()
	all := slices.Collect(maps.Values(b.pythons.byWish))
	clear(b.pythons.byWish)
	b.pythons.Unlock()
	for _, p := range all {
		p.close()
	}
	b.cache.Lock()
	defer b.cache.Unlock()
	if b.cache.opened == nil {
		return
	}
	if err := b.cache.opened.Close(); err != nil {
		b.log.Warn().Err(err).Msg("cache of execution environments was not closed properly")
	}
	b.cache.opened = nil
}
