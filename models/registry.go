package models

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// RegistryConfig sets up a Registry.
type RegistryConfig struct {
	Repository *repository.Roots
	version.Settings
	// Unusable reports that the repository cannot be opened. The registry is not started, and is
	// neither ready nor live.
	Unusable bool
	// StrictReadiness makes the server ready only when all models are ready.
	StrictReadiness bool
	// Explicit is model control mode explicit: only the models named in Startup
	// ("*" alone: all) are loaded.
	Explicit bool
	Startup  []string
	// PollInterval is the pause between two polls of the repository; 0: no polling. It excludes
	// Explicit.
	PollInterval time.Duration
	// LoadThreads is the number of versions that are loaded concurrently; default 4.
	LoadThreads int
	// LoadRetries is the number of retries of a failed load.
	LoadRetries int
	// Develop reloads models when their sources change, from Start on. The poll interval is then 0,
	// and the repository considers only sources.
	Develop bool
	// Busy reports whether changes of the sources must wait; may be nil.
	Busy func() bool
	// Loads observes loads; may be nil.
	Loads LoadObserver
	// UnloadTimeout is the time that an unload, or the load of a newer source, waits before it
	// cancels a load in progress; 0: forever.
	UnloadTimeout time.Duration
}

// LoadObserver observes loads. The loading goroutines call its methods concurrently; they return at
// once.
type LoadObserver interface {
	// Planned is called before the loads at startup, with their models.
	Planned(models []string)
	// Began is called when the load of a version leaves the queue.
	Began(model string, version int64)
	// Ended reports the duration of a load, and why it failed, or nil.
	Ended(model string, version int64, took time.Duration, fault *diagnosis.Fault)
}

// Registry knows the models and runs their requests. It implements server.Core.
type Registry struct {
	config RegistryConfig

	catalog *catalog.Catalog
	reader
	troubles troubles

	started  atomic.Bool
	leaving  atomic.Bool // set by Leave, never reset
	loader   *version.Loader
	loading  chan struct{} // one value for each version that is being loaded
	ending   panics.WaitGroup
	lifetime context.Context // bounds unloads
	expire   context.CancelCauseFunc
	uploads  *repository.Uploads
	locks    *catalog.LockTable

	// changes ends when the server is about to exit. Then loads and unloads are refused, and those
	// in progress are cancelled.
	changes     context.Context
	stopChanges context.CancelCauseFunc

	sayControl sync.Once // guards the log of why loads and unloads are refused

	gates     *gates         // nil without Develop
	polls     sync.WaitGroup // polls and the changes that they have begun
	polling   context.Context
	stopPolls context.CancelCauseFunc
}

// NewRegistry makes a registry that has loaded nothing.
func NewRegistry(config RegistryConfig) *Registry {
	if config.LoadThreads <= 0 {
		config.LoadThreads = 4
	}
	r := &Registry{
		config:  config,
		loading: make(chan struct{}, config.LoadThreads), // bound: a flag
		uploads: repository.NewUploads(config.Log, config.Memory.Limits().LoadFiles),
	}
	r.catalog = catalog.New(config.Repository, view{r})
	if config.Develop {
		r.gates = &gates{shuts: make(map[string]*gate)}
		r.catalog.ShowFailures()
	}
	r.reader = reader{config.Repository, r.catalog}
	r.troubles.repository = config.Repository
	r.loader = version.NewLoader(config.Settings, view{r})
	r.lifetime, r.expire = context.WithCancelCause(context.Background())
	r.locks = catalog.NewLockTable(config.UnloadTimeout, errOvertaken)
	r.changes, r.stopChanges = context.WithCancelCause(context.Background())
	r.polling, r.stopPolls = context.WithCancelCause(context.Background())
	return r
}

// lookup finds the version that serves a request.
func (r *Registry) lookup(name string, number int64) (*version.Version, error) {
	if !r.started.Load() {
		return nil, errNotReady
	}
	if err := checkLength(name); err != nil {
		return nil, err
	}
	return r.catalog.Find(name, number)
}

// reach finds the version that a request reaches and keeps it open. The caller releases it when
// the scheduler has the request.
func (r *Registry) reach(name string, number int64) (version.Held, error) {
	return held(func() (*version.Version, error) { return r.lookup(name, number) })
}

// held looks up a version until it can be held, and holds it.
func held(lookup func() (*version.Version, error)) (version.Held, error) {
	for {
		v, err := lookup()
		if err != nil {
			return version.Held{}, err
		}
		if h, can := v.Hold(); can {
			return h, nil
		}
		// It was replaced just now: its successor is there already, or it is gone.
	}
}

// Model returns the version that would serve a request.
func (r *Registry) Model(name string, number int64) (*Info, error) {
	v, err := r.lookup(name, number)
	if err != nil {
		return nil, err
	}
	return v.Info(), nil
}

// ReadyVersions lists the ready versions of a model, ascending.
func (r *Registry) ReadyVersions(name string) []int64 {
	return r.catalog.ReadyVersions(name)
}

func (r *Registry) checkExiting() error {
	if r.loader.Exiting() {
		return version.ErrExiting
	}
	return nil
}

// Live reports whether the server works at all. Without a repository it does not.
func (r *Registry) Live() (bool, error) {
	err := r.checkExiting()
	return err == nil && !r.config.Unusable, err
}

// Leave makes the server not ready, so that clients go elsewhere. It still serves requests.
func (r *Registry) Leave() { r.leaving.Store(true) }

// Ready reports whether startup has finished and Leave has not been called. Under strict readiness,
// all known versions that are not unloaded must also be ready, with their instances.
func (r *Registry) Ready(ctx context.Context) (bool, error) {
	if err := r.checkExiting(); err != nil {
		return false, err
	}
	if !r.started.Load() || r.leaving.Load() {
		return false, nil
	}
	if !r.config.StrictReadiness {
		return true, nil
	}
	serving, ready := r.catalog.AllReady()
	for _, v := range serving {
		if !ready {
			break
		}
		ready = r.healthy(ctx, v)
	}
	return ready, nil
}

// ModelReady reports whether a version is ready and its instances are.
func (r *Registry) ModelReady(ctx context.Context, name string, number int64) (bool, error) {
	if err := r.checkExiting(); err != nil {
		return false, err
	}
	v, err := r.lookup(name, number)
	if err != nil {
		return false, err
	}
	return r.healthy(ctx, v), nil
}

func (r *Registry) healthy(ctx context.Context, v *version.Version) bool {
	err := v.Ready(ctx)
	if err != nil {
		r.config.Log.Debug().Msgf("Model '%s' version %d is not ready: %v", v.Info().Name, v.Info().Version, err)
	}
	return err == nil
}

// InFlight counts the requests in flight of each version that has any.
func (r *Registry) InFlight() map[*Info]int {
	return r.catalog.InFlight()
}

// indexAge is the age from which an index begins a new listing of a store. A client that asks all
// the time causes four listings a minute.
const indexAge = 15 * time.Second

// Index lists the models that have a directory in the repository, loaded or not, as the protocol
// shows it. For stores it uses the last listing.
func (r *Registry) Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	if r.config.Unusable {
		return nil, errNotReady
	}
	r.config.Repository.Renew(indexAge)
	troubled := r.troubles.models() // before the look: what fails meanwhile is not forgotten
	ids, rejected, err := r.config.Repository.Scan()
	if err != nil {
		r.config.Log.Error().Msgf("list the model repository: %v", err)
	} else {
		r.troubles.forget(troubled, ids)
	}
	return r.catalog.Index(ids, rejected, ready), nil
}

// Statistics returns the statistics of ready versions.
func (r *Registry) Statistics(name string, number int64) ([]*kserve.ModelStatistics, error) {
	if r.config.Unusable {
		return nil, errNotReady
	}
	if err := checkLength(name); err != nil {
		return nil, err
	}
	return r.catalog.Statistics(name, number)
}

// Attempted lists the models that have been loaded or tried, by name and version.
func (r *Registry) Attempted() []catalog.Status { return r.catalog.Attempted() }

// VersionStatus is one version of a model as operators see it.
type VersionStatus struct {
	Name, Namespace string
	Version         int64 // 0: the model has none
	State           string
	Reason          string // of UNAVAILABLE
	InFlight        int    // accepted requests without a final response
	// Info is nil unless the version is loaded. Instances are the names of its instances.
	Info      *Info
	Instances []string
}

// Overview lists the versions of attempted models, by namespace, name and version, and the models
// that could not be read. It takes no lock that is held during a load or an unload.
func (r *Registry) Overview() []VersionStatus {
	var list []VersionStatus // bound: the versions of attempted models
	left := r.troubles.models()
	r.catalog.Overview(func(v catalog.Shown) {
		s := VersionStatus{Name: v.Model.Name, Namespace: v.Model.Namespace, Version: v.Number, State: string(v.State), Reason: v.Reason}
		if v.Version != nil {
			s.InFlight, s.Info, s.Instances = v.Version.InFlight(), v.Version.Info(), v.Version.Instances()
		}
		if left[v.Model] && v.Number == 0 {
			s.Reason = r.troubles.of(v.Model)
		}
		delete(left, v.Model)
		list = append(list, s)
	})
	for id := range left {
		list = append(list, VersionStatus{Name: id.Name, Namespace: id.Namespace, State: string(catalog.Unavailable), Reason: r.troubles.of(id)})
	}
	slices.SortStableFunc(list, func(a, b VersionStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return list
}
