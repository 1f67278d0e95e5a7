package nereid

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/native"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/devices"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/sdk/linked"
	"github.com/nereid-serving/nereid/server/clientshm"
	"github.com/nereid-serving/nereid/server/recording"
	"github.com/nereid-serving/nereid/server/status"
	"github.com/nereid-serving/nereid/server/tracing"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
)

// Server is a whole inference server. See the package's documentation for its states.
type Server struct {
	options    Options
	log        zerolog.Logger
	account    *budget.Account
	requests   *shm.Pool
	supervisor *process.Supervisor // of all processes; nil if the kernel lacks a required feature
	python     *python.Backend     // nil without a supervisor, and if its settings are invalid
	devices    *devices.Devices    // nil without a CUDA driver, or without python
	copier     *devices.Copier     // nil in the same cases
	linked     map[string]*linked.Backend
	repository *repository.Roots // nil until it has been opened
	registry   *models.Registry
	regions    *clientshm.Registry // of clients' shared memory
	traces     *tracing.Tracer     // nil without a mode
	recorder   *recording.Recorder // nil unless requests are recorded
	status     *status.Keeper
	fronts     []*front // bound: the names of front ends
	// unusable is the error from opening the repository.
	unusable error
	// stopKeeping stops watching the heap and the status, and waits for both goroutines.
	stopKeeping func()

	loaded, listening bool

	mu      sync.Mutex
	killed  bool
	cancels []context.CancelFunc // of the contexts that Kill cancels; bound: Run and Shutdown
}

// New validates the options and creates all parts of a server. Nothing listens and no model is
// loaded yet. The caller closes the server.
func New(o Options) (_ *Server, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Repository.Paths = sortedSet(o.Repository.Paths)
	o.Repository.StartupModels = sortedSet(o.Repository.StartupModels)
	if o.Logging == nil {
		o.Logging = fixedLog{o.Logger.GetLevel()}
	}
	s := &Server{options: o, log: o.Logger, stopKeeping: func() {}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	opened, err := repository.Open(o.Repository.Paths, repository.Options{
		ConfigName: o.Repository.ConfigName, DisableAutoComplete: o.Repository.DisableAutoCompleteConfig,
		AgentDirectory: o.Repository.AgentDirectory, Namespacing: o.Repository.Namespacing, SourcesAlone: o.Repository.Develop,
		GPUs: s.gpus, MinCapability: o.Backends.MinComputeCapability, Preferred: s.preferredGroups,
		Objects: o.Repository.Objects, Mounts: o.Repository.Mounts, Stop: o.Repository.Stop, Log: s.log,
	})
	if err != nil {
		if o.ExitOnError {
			return nil, err
		}
		s.unusable, opened = err, &repository.Roots{}
	}
	s.repository = opened
	series := o.Metrics.Series
	series.NoCustom, series.Log = !o.Metrics.Allow, s.log
	counters := metrics.New(series)
	if err := s.makeAccount(int64(o.RequestMemoryBytes), o.CacheBytes, counters); err != nil {
		return nil, err
	}
	responses, err := s.makeCache(o.CacheBytes, counters)
	if err != nil {
		return nil, err
	}
	plugins := s.makeSupervisor(counters)
	config, pythonBackend := s.makePython(plugins)
	s.countDevices(counters)
	s.countStores(counters)
	s.registry = models.NewRegistry(models.RegistryConfig{
		Settings: version.Settings{
			Backends: s.linkBackends(map[string]backend.Backend{"python": pythonBackend}, config.UnloadTimeout, counters), BackendDirectory: o.Backends.Directory, Plugins: plugins,
			BackendSettings: s.options.ownSettings, Limiter: o.RateLimit.limiter(), Allocate: s.lend(budget.Stacked),
			Padding: s.lend(budget.Padding), Memory: s.account, DelayRequests: o.Delay.Requests, DelayBacklog: o.Delay.Backlog,
			MaxQueue: o.Limits.QueuedRequests, StrictOutputs: o.StrictOutputs,
			Metrics: counters, GPU: s.gpuUUID(), Cache: responses, Log: s.log,
		},
		Repository: opened, Unusable: s.unusable != nil, StrictReadiness: o.Repository.StrictReadiness,
		Explicit: o.Repository.Control == ControlExplicit, Startup: o.Repository.StartupModels, PollInterval: o.Repository.pollInterval(),
		LoadThreads: o.Repository.LoadThreads, LoadRetries: o.Repository.LoadRetries, UnloadTimeout: config.UnloadTimeout,
		Loads: o.Loads, Develop: o.Repository.Develop, Busy: s.options.Busy,
	})
	s.makeRegions(counters)
	if err := s.makeTraces(); err != nil {
		return nil, err
	}
	s.makeStatus(counters)
	if err := s.makeRecorder(counters); err != nil {
		return nil, err
	}
	if err := s.makeFronts(counters); err != nil {
		return nil, err
	}
	s.keepAccount()
	s.keepStatus()
	return s, nil
}

// Close releases everything that Run and Shutdown leave: unserved sockets, templates of processes,
// shared memory. All requests must have ended.
func (s *Server) Close() {
	s.stopKeeping()
	for _, f := range s.fronts {
		f.abandon()
	}
	s.closeTraces()
	s.recorder.Close()
	if s.regions != nil {
		s.regions.Close()
	}
	s.devices.Close()
	s.copier.Close() // it still reads the counters
	for _, b := range s.linked {
		b.Close()
	}
	if s.python != nil {
		s.python.Close()
	}
	if s.supervisor != nil {
		s.supervisor.Close()
	}
	if s.requests != nil {
		s.requests.Close()
	}
	if s.repository != nil {
		s.repository.Close()
	}
}

// countStores adds metrics of repositories in object stores.
func (s *Server) countStores(counters *metrics.Registry) {
	for _, m := range s.repository.Stores() {
		counters.Repository(m.Location().String(), m.Figures)
	}
}

// Registry returns the models of this server, for requests without a front end and for start-up
// tables.
func (s *Server) Registry() *models.Registry { return s.registry }

// Account returns the account of the memory that clients and models take.
func (s *Server) Account() *budget.Account { return s.account }

// RepositoryError returns the error from opening the repository, or nil.
func (s *Server) RepositoryError() error { return s.unusable }

// sortedSet returns the texts sorted and without duplicates.
func sortedSet(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// limiter creates the configured rate limiter, or returns nil.
func (o *RateLimitOptions) limiter() *ratelimit.Limiter {
	if !o.ExecutionCount {
		return nil
	}
	var explicit []ratelimit.Resource
	for _, r := range o.Resources {
		device := ratelimit.AnyDevice
		if r.Device >= 0 {
			device = int32(r.Device)
		}
		explicit = append(explicit, ratelimit.Resource{Name: r.Name, Count: int64(r.Count), Device: device}) // bound: the command line
	}
	return ratelimit.New(explicit)
}

// makeSupervisor creates the supervisor of all backend processes, and the backend for plugins.
func (s *Server) makeSupervisor(counters *metrics.Registry) (plugins backend.Backend) {
	var err error
	s.supervisor, err = process.New(process.Environment{
		Requests: s.requests, Log: s.log, Stdout: s.options.Stdout, Stderr: s.options.Stderr, LogLevels: logLevels(s.options.Logging),
		Limits: s.options.Limits.Processes, Metrics: counters, HostPolicies: s.options.HostPolicies, Memory: s.account, SoleParent: s.options.SoleParent,
		ClientRegions: s.options.AllowClientSHM, Admit: s.admit,
	})
	if err != nil {
		return brokenBackend{err}
	}
	counters.Processes(s.processes)
	return native.New(native.Environment{
		Supervisor: s.supervisor, Settings: s.options.nativeSettings, Directory: s.options.Backends.Directory, Log: s.log,
	})
}

// CheckSyntax parses Python files without running them, as python.Backend does.
func (s *Server) CheckSyntax(ctx context.Context, files []string) ([]python.SyntaxError, error) {
	if s.python == nil {
		return nil, errors.New("the Python backend is not available")
	}
	return s.python.CheckSyntax(ctx, files)
}

// makePython creates the Python backend. Invalid settings are reported when the first model needs
// the backend, as in Triton. Without a supervisor, the backend fails like plugins.
func (s *Server) makePython(plugins backend.Backend) (python.Config, backend.Backend) {
	config, err := python.ParseConfig(s.options.BackendSettings("python"))
	if err != nil {
		return config, brokenBackend{err}
	}
	if s.supervisor == nil {
		return config, plugins
	}
	config.StrictOutputs, config.Develop = s.options.StrictOutputs, s.options.Repository.Develop
	if config.Develop { // a person in a debugger is not a hang
		config.InitializeTimeout, config.ExecuteTimeout, config.ReadyTimeout = 0, 0, 0
	}
	s.python, err = python.New(python.Environment{Supervisor: s.supervisor, Config: config, Files: []fs.FS{stub.Files, pyutils.Files}, Log: s.log})
	if err != nil {
		return config, brokenBackend{err}
	}
	return config, s.python
}

// brokenBackend opens no models and returns the reason.
type brokenBackend struct{ err error }

func (b brokenBackend) Open(backend.Env) (backend.Model, error) { return nil, b.err }

// makeCache creates the response cache, or returns nil if its size is 0.
func (s *Server) makeCache(size int64, counters *metrics.Registry) (*cache.Cache, error) {
	if size == 0 {
		return nil, nil
	}
	c, err := cache.New(cache.Config{Size: size, Allocate: s.lend(budget.Cache)})
	if err != nil {
		return nil, err
	}
	s.log.Info().Int64("bytes", size).Msg("responses are cached")
	counters.Cache(c.Stats)
	return c, nil
}
