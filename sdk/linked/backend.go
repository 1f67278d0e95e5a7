package linked

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/engine"
)

// Config configures a linked-in backend. The zero value is usable.
type Config struct {
	// Settings returns the merged settings of --backend-config, also in the form that Triton's
	// backends receive. It is called when the first model uses the backend. nil means no settings.
	Settings func() (values map[string]string, message string)
	// Allocate lends memory for outputs of more than engine.SmallOutput bytes, with one reference; nil
	// means the Go heap.
	Allocate func(bytes int) ([]byte, infer.Memory, error)
	// Metrics returns the custom metrics of a model; nil: they are rejected.
	Metrics  func(model string) CustomMetrics
	Policies placement.HostPolicies // reported to instances
	// MaxInstances limits the instances of a model; 0: 4096.
	MaxInstances int
	// UnloadTimeout limits the end of a model; 0: no limit.
	UnloadTimeout time.Duration
	Log           zerolog.Logger // the zero value writes nothing
}

// CustomMetrics are the custom metrics of one model. metrics.Holder implements it.
type CustomMetrics interface {
	engine.Metrics
	End(keep bool)
}

// Backend is a backend that is linked into this process. It implements backend.Backend.
type Backend struct {
	name       string
	initialize sdk.New
	config     Config

	mu     sync.Mutex      // held while the backend is initialized, and closed
	opened *engine.Backend // nil before the first model
	models int             // whose author's model has not been closed
	closed bool
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend that is initialized when its first model is opened. The caller closes it.
func New(name string, initialize sdk.New, config Config) *Backend {
	if config.MaxInstances <= 0 {
		config.MaxInstances = 4096
	}
	return &Backend{name: name, initialize: initialize, config: config}
}

// Open implements backend.Backend.
func (b *Backend) Open(env backend.Env) (backend.Model, error) {
	opened, err := b.open()
	if err != nil {
		return nil, err
	}
	m := &Model{backend: b, env: env}
	v := engine.Version{Name: env.Name, Version: env.Version, Directory: env.Directory, Host: env.Host, Responses: env.Responses}
	if b.config.Metrics != nil {
		m.metrics = b.config.Metrics(env.Name)
		v.Metrics = m.metrics
	}
	m.engine = opened.Model(v)
	b.count(1)
	return m, nil
}

func (b *Backend) count(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.models += n
}

// open initializes the backend once. After a failure, the next model tries again.
func (b *Backend) open() (*engine.Backend, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, infer.Errorf(infer.Unavailable, "backend '%s' has been closed", b.name)
	}
	if b.opened != nil {
		return b.opened, nil
	}
	env := engine.Environment{Name: b.name, Log: b.log, Own: b.config.Log}
	if b.config.Settings != nil {
		env.Settings, env.Message = b.config.Settings()
	}
	if allocate := b.config.Allocate; allocate != nil {
		env.Allocate = func(n int64) ([]byte, infer.Memory, error) { return allocate(int(n)) }
	}
	opened, err := engine.Open(b.initialize, env)
	if err != nil {
		return nil, err
	}
	b.opened = opened
	return opened, nil
}

// Groups initializes the backend and returns its preferred instance groups; none after a failure,
// which the first model reports.
func (b *Backend) Groups() []*kserve.ModelInstanceGroup {
	opened, err := b.open()
	if err != nil {
		return nil
	}
	var groups []*kserve.ModelInstanceGroup
	for _, g := range opened.Attributes().Groups {
		groups = append(groups, &kserve.ModelInstanceGroup{Kind: g.Kind, Count: g.Count, Gpus: slices.Clone(g.GPUs)})
	}
	return groups
}

// parallel reports whether instances of one model may be created concurrently. The backend has been
// opened.
func (b *Backend) parallel() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened != nil && b.opened.Attributes().ParallelInstances
}

// Close ends the backend after all of its models. If the code of one has not returned, the author's
// backend is not closed.
func (b *Backend) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.opened == nil {
		return
	}
	if b.models > 0 {
		b.config.Log.Error().Msgf("backend '%s' is not closed, because %d of its models have not returned", b.name, b.models)
		return
	}
	b.opened.Close()
	b.opened = nil
}

// log writes a message of the backend's own.
func (b *Backend) log(level slog.Level, file string, line int, message string) {
	log := &b.config.Log
	event := log.Debug()
	switch {
	case level >= slog.LevelError:
		event = log.Error()
	case level >= slog.LevelWarn:
		event = log.Warn()
	case level >= slog.LevelInfo:
		event = log.Info()
	}
	event.Str("file", file).Int("line", line).Msg(message)
}
