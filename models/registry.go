package models

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/memory"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/locktable"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/stacked"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// RegistryConfig sets up a Registry.
type RegistryConfig struct {
	Repository *repository.Roots
	// Backends by the name that a config's backend field gives.
	Backends map[string]backend.Backend
	// BackendDirectory is where other backends lie, each in a directory of its name.
	// One that has a model.py is Python-based: the backend "python" runs it.
	BackendDirectory string
	// Unusable says that the repository cannot be opened: the registry is not started
	// and answers that it is not ready, nor live.
	Unusable bool
	// BackendSettings are what the command line sets for a Python-based backend of
	// that name alone; nil if it sets nothing.
	BackendSettings func(name string) map[string]string
	// StrictReadiness makes the server ready only when all models are.
	StrictReadiness bool
	// Explicit is model control mode explicit: only the models named in Startup
	// ("*" alone: all) are loaded.
	Explicit bool
	Startup  []string
	// PollInterval is how long to wait after a look for changes in the repository
	// before the next; 0: there is none after the start. It excludes Explicit.
	PollInterval time.Duration
	// LoadThreads is how many versions are loaded at once; default 4.
	LoadThreads int
	// LoadRetries is how often a failed load is tried again.
	LoadRetries int
	// UnloadTimeout is how long an unload, or the load of a model from something
	// newer, waits for a load that is under way before that is given up; 0: for ever.
	UnloadTimeout time.Duration
	// Strategies are batching strategies by the name that a model's parameter
	// BATCH_STRATEGY gives, beside "volume" and "single".
	Strategies map[string]NewStrategy
	// DelayRequests and DelayBacklog have schedulers begin when so many requests
	// wait, and so many sequences' in a backlog: for tests.
	DelayRequests, DelayBacklog int
	// Limiter has the instances of all models take turns; nil: they do not.
	Limiter *ratelimit.Limiter
	// Allocate lends memory for tensors that the server itself makes: n bytes with
	// one reference. Default the Go heap.
	Allocate stacked.Allocator
	// Padding lends memory for the empty slots of sequences; nil: it lies on the heap.
	Padding func(n int) ([]byte, infer.Memory, error)
	// Memory is the account of what models' states take; nil: they are not charged.
	Memory  *memory.Account
	Metrics *metrics.Registry
	// Cache keeps responses of the models whose config allows it; nil keeps none.
	Cache *cache.Cache
	Log   zerolog.Logger
}

// Registry knows the models and runs their requests. It implements
// server.Core.
type Registry struct {
	config RegistryConfig

	catalog
	reader

	started atomic.Bool
	exiting atomic.Bool

	graph    *waitgraph.Graph
	loading  chan struct{} // holds a value for each version that is being loaded
	ending   boundary.WaitGroup
	lifetime context.Context // of what unloading may take
	expire   context.CancelCauseFunc
	uploads  *repository.Uploads
	locks    *locktable.Table[*source]

	// changes ends when the server is about to exit: loads and unloads are refused
	// then, and those under way are given up.
	changes     context.Context
	stopChanges context.CancelCauseFunc

	polls     sync.WaitGroup // looks at the repository, and what they have begun
	polling   context.Context
	stopPolls context.CancelCauseFunc
}

// NewRegistry makes a registry that has loaded nothing.
func NewRegistry(config RegistryConfig) *Registry {
	if config.LoadThreads <= 0 {
		config.LoadThreads = 4
	}
	if config.Allocate == nil {
		config.Allocate = func(n int) ([]byte, infer.Memory, error) { return make([]byte, n), nil, nil }
	}
	r := &Registry{
		config: config, catalog: catalog{repository: config.Repository, models: make(map[repository.Identity]*model)}, graph: waitgraph.New(config.Log, waitgraph.Patience),
		loading: make(chan struct{}, config.LoadThreads), uploads: repository.NewUploads(config.Log),
	}
	r.reader = reader{&r.catalog}
	config.Limiter.LogTo(config.Log)
	r.lifetime, r.expire = context.WithCancelCause(context.Background())
	r.locks = locktable.New[*source](config.UnloadTimeout, errOvertaken)
	r.changes, r.stopChanges = context.WithCancelCause(context.Background())
	r.polling, r.stopPolls = context.WithCancelCause(context.Background())
	r.serving.Store(&servingNow{})
	return r
}

// lookup finds the version that a request reaches.
func (r *Registry) lookup(name string, number int64) (*loaded, error) {
	if !r.started.Load() {
		return nil, errNotReady
	}
	m, err := r.serving.Load().find(name)
	if err != nil {
		return nil, err
	}
	return m.version(name, number)
}

// reached finds the version that is to run a request. The caller releases it when
// the scheduler has the request.
func (r *Registry) reached(req *infer.Request) (*loaded, error) {
	return held(func() (*loaded, error) { return r.lookup(req.Model, req.Version) })
}

// Model returns the version that a request would reach.
func (r *Registry) Model(name string, number int64) (*Info, error) {
	l, err := r.lookup(name, number)
	if err != nil {
		return nil, err
	}
	return l.info, nil
}

// ReadyVersions lists the versions of a model that are ready, ascending.
func (r *Registry) ReadyVersions(name string) []int64 {
	if m, err := r.serving.Load().find(name); err == nil && m != nil {
		return m.ready
	}
	return nil
}

func (r *Registry) checkExiting() error {
	if r.exiting.Load() {
		return infer.Errorf(infer.Unavailable, "Server exiting")
	}
	return nil
}

// Live reports whether the server works at all, which it does not without a
// repository.
func (r *Registry) Live() (bool, error) {
	err := r.checkExiting()
	return err == nil && !r.config.Unusable, err
}

// Ready reports whether start-up has finished and, under strict readiness, all
// versions that are known and not unloaded are ready, and so are their
// instances.
func (r *Registry) Ready(ctx context.Context) (bool, error) {
	if err := r.checkExiting(); err != nil {
		return false, err
	}
	if !r.started.Load() {
		return false, nil
	}
	if !r.config.StrictReadiness {
		return true, nil
	}
	r.mu.Lock()
	var serving []*loaded
	ready := true
	for _, m := range r.models {
		if m.attempted && len(m.versions) == 0 {
			ready = false
		}
		for _, v := range m.versions {
			switch {
			case v.state == Ready:
				serving = append(serving, v.loaded)
			case v.state != Unavailable || v.reason != reasonUnloaded:
				ready = false
			}
		}
	}
	r.mu.Unlock()
	for _, l := range serving {
		if !ready {
			break
		}
		ready = r.healthy(ctx, l)
	}
	return ready, nil
}

// ModelReady reports whether a version is ready and its instances are.
func (r *Registry) ModelReady(ctx context.Context, name string, number int64) (bool, error) {
	if err := r.checkExiting(); err != nil {
		return false, err
	}
	l, err := r.lookup(name, number)
	if err != nil {
		return false, err
	}
	return r.healthy(ctx, l), nil
}

func (r *Registry) healthy(ctx context.Context, l *loaded) bool {
	err := l.ready(ctx)
	if err != nil {
		r.config.Log.Debug().Msgf("Model '%s' version %d is not ready: %v", l.info.Name, l.info.Version, err)
	}
	return err == nil
}

// InFlight counts the requests inside each version that has any.
func (r *Registry) InFlight() map[*Info]int {
	counts := make(map[*Info]int)
	for _, m := range r.serving.Load().models {
		for _, v := range m.versions {
			if v.loaded == nil {
				continue
			}
			if n := v.scheduler.InFlight(); n > 0 {
				counts[v.info] = n
			}
		}
	}
	return counts
}
