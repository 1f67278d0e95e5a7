package models

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/stacked"
	"github.com/rs/zerolog"
)

// RegistryConfig sets up a Registry.
type RegistryConfig struct {
	Repository *Repository
	// Backends by the name that a config's backend field gives.
	Backends map[string]backend.Backend
	// BackendDirectory is where other backends lie, each in a directory of its name.
	// One that has a model.py is Python-based: the backend "python" runs it.
	BackendDirectory string
	// BackendSettings are what the command line sets for a Python-based backend of
	// that name alone; nil if it sets nothing.
	BackendSettings func(name string) map[string]string
	// StrictReadiness makes the server ready only when all models are.
	StrictReadiness bool
	// Explicit is model control mode explicit: only the models named in Startup
	// ("*" alone: all) are loaded.
	Explicit bool
	Startup  []string
	// LoadThreads is how many versions are loaded at once; default 4.
	LoadThreads int
	// LoadRetries is how often a failed load is tried again.
	LoadRetries int
	// Allocate lends memory for tensors that the server itself makes: n bytes with
	// one reference. Default the Go heap.
	Allocate stacked.Allocator
	// Strategies are batching strategies by the name that a model's parameter
	// BATCH_STRATEGY gives, beside "volume" and "single".
	Strategies map[string]NewStrategy
	// DelayScheduler has each dynamic batcher wait until so many requests are in its
	// queue before it forms its first batch: for tests.
	DelayScheduler int
	Metrics        *metrics.Registry
	// Cache keeps responses of the models whose config allows it; nil keeps none.
	Cache *cache.Cache
	Log   zerolog.Logger
}

// Registry knows the models and runs their requests. It implements
// server.Core.
type Registry struct {
	config RegistryConfig

	// serving is what requests look at: replaced as a whole by publishLocked.
	serving atomic.Pointer[map[string]*servingModel]
	started atomic.Bool
	exiting atomic.Bool

	graph    *scheduler.Graph
	loading  chan struct{} // holds a value for each version that is being loaded
	ending   sync.WaitGroup
	lifetime context.Context // of what unloading may take
	expire   context.CancelCauseFunc
	uploads  uploads

	mu     sync.Mutex
	models map[string]*model
	// waits tells for changes of which models the code of a model waits that is
	// being loaded, and how often.
	waits map[string]map[string]int
}

// model is what the registry knows of one model.
type model struct {
	name string
	// changing has room for one: whoever loads versions or takes them out of service
	// sends, and receives afterwards.
	changing chan struct{}
	// kept is set while the model serves with a configuration that came with a load
	// request: the newest time in its directory then. Only who changes the model
	// looks at it.
	kept *time.Time

	// Guarded by the registry's mu.

	// versions is empty for a model that was never loaded or has no version.
	versions map[int64]*version
	// attempted is true once loading was tried: a model without versions then
	// keeps the server from being ready.
	attempted bool
}

// servingModel is a model's state as requests see it. It does not change.
type servingModel struct {
	versions map[int64]*version // copies
	ready    []int64            // ascending
}

// NewRegistry makes a registry that has loaded nothing.
func NewRegistry(config RegistryConfig) *Registry {
	if config.LoadThreads <= 0 {
		config.LoadThreads = 4
	}
	if config.Allocate == nil {
		config.Allocate = func(n int) ([]byte, infer.Memory, error) { return make([]byte, n), nil, nil }
	}
	r := &Registry{config: config, models: make(map[string]*model), waits: make(map[string]map[string]int), graph: scheduler.NewGraph(), loading: make(chan struct{}, config.LoadThreads), uploads: uploads{log: config.Log}}
	r.lifetime, r.expire = context.WithCancelCause(context.Background())
	r.serving.Store(&map[string]*servingModel{})
	return r
}

// publishLocked makes the present states visible to requests.
func (r *Registry) publishLocked() {
	all := make(map[string]*servingModel, len(r.models))
	for name, m := range r.models {
		if len(m.versions) == 0 {
			continue
		}
		s := &servingModel{versions: make(map[int64]*version, len(m.versions))}
		for number, v := range m.versions {
			shown := *v
			s.versions[number] = &shown
			if v.state == Ready {
				s.ready = append(s.ready, number)
			}
		}
		slices.Sort(s.ready)
		all[name] = s
	}
	r.serving.Store(&all)
}

// lookup finds the version that a request reaches.
func (r *Registry) lookup(name string, number int64) (*loaded, error) {
	if !r.started.Load() {
		return nil, infer.Errorf(infer.Unavailable, "Server not ready")
	}
	m := (*r.serving.Load())[name]
	if m == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	if number == infer.LatestVersion {
		if len(m.ready) == 0 {
			return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", name)
		}
		number = m.ready[len(m.ready)-1]
	}
	v := m.versions[number]
	if v == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
	}
	if v.state != Ready {
		return nil, infer.Errorf(infer.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, number)
	}
	return v.loaded, nil
}

// Infer implements infer.Handler. While the server exits it fails with
// Unavailable.
func (r *Registry) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	if err := r.checkExiting(); err != nil {
		return err
	}
	l, err := r.reached(req)
	if err != nil {
		return err
	}
	return l.run(ctx, req, send, l.scheduler.Infer)
}

// reached finds the version that is to run a request.
func (r *Registry) reached(req *infer.Request) (*loaded, error) {
	l, err := r.lookup(req.Model, req.Version)
	if err == nil && l.retired.Load() {
		// It was replaced just now: its successor is there already.
		l, err = r.lookup(req.Model, req.Version)
	}
	return l, err
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
	if m := (*r.serving.Load())[name]; m != nil {
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

// Live reports whether the server works at all.
func (r *Registry) Live() (bool, error) {
	err := r.checkExiting()
	return err == nil, err
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

// Statistics returns the statistics of what is ready.
func (r *Registry) Statistics(name string, number int64) ([]*kserve.ModelStatistics, error) {
	serving := *r.serving.Load()
	var names []string
	if name != "" {
		m := serving[name]
		if m == nil || len(m.ready) == 0 {
			return nil, infer.Errorf(infer.InvalidArg, "requested model '%s' is not available", name)
		}
		if number != infer.LatestVersion {
			v := m.versions[number]
			if v == nil || v.state != Ready {
				return nil, infer.Errorf(infer.InvalidArg, "requested model version is not available for model '%s'", name)
			}
			return []*kserve.ModelStatistics{v.statistics.proto()}, nil
		}
		names = []string{name}
	} else {
		names = slices.Sorted(maps.Keys(serving))
	}
	var list []*kserve.ModelStatistics
	for _, n := range names {
		for _, number := range serving[n].ready {
			list = append(list, serving[n].versions[number].statistics.proto())
		}
	}
	return list, nil
}

// Index lists the repository as the protocol shows it: the models that have a
// directory there, whatever was loaded.
func (r *Registry) Index(ready bool) []*kserve.RepositoryIndexResponse_ModelIndex {
	names, rejected, err := r.config.Repository.Scan()
	if err != nil {
		r.config.Log.Error().Msgf("list the model repository: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var index []*kserve.RepositoryIndexResponse_ModelIndex
	for _, name := range names {
		m := r.models[name]
		if m == nil || len(m.versions) == 0 {
			entry := &kserve.RepositoryIndexResponse_ModelIndex{Name: name}
			if reason, no := rejected[name]; no {
				entry.State, entry.Reason = string(Unavailable), reason
			} else if m != nil && m.attempted {
				continue
			}
			if !ready {
				index = append(index, entry)
			}
			continue
		}
		for _, number := range slices.Sorted(maps.Keys(m.versions)) {
			v := m.versions[number]
			if ready && v.state != Ready {
				continue
			}
			index = append(index, &kserve.RepositoryIndexResponse_ModelIndex{
				Name: name, Version: strconv.FormatInt(number, 10), State: string(v.state), Reason: v.reason,
			})
		}
	}
	return index
}

// InFlight counts the requests inside each version that has any.
func (r *Registry) InFlight() map[*Info]int {
	counts := make(map[*Info]int)
	for _, m := range *r.serving.Load() {
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

// Status is one version of a model as the start-up table shows it; a model
// without any version has Version 0.
type Status struct {
	Name    string
	Version int64
	State   State
	Reason  string
	Backend string // of a version that serves
	// PythonBased says that the backend is one.
	PythonBased bool
}

// Attempted lists the models that loading was tried for, by name and version.
func (r *Registry) Attempted() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Status
	for _, name := range slices.Sorted(maps.Keys(r.models)) {
		m := r.models[name]
		if !m.attempted {
			continue
		}
		if len(m.versions) == 0 {
			list = append(list, Status{Name: name})
		}
		for _, number := range slices.Sorted(maps.Keys(m.versions)) {
			v := m.versions[number]
			s := Status{Name: name, Version: number, State: v.state, Reason: v.reason}
			if v.state == Ready {
				s.Backend = v.info.Config.GetBackend()
				s.PythonBased = v.info.Config.GetRuntime() == runtimeScript
			}
			list = append(list, s)
		}
	}
	return list
}
