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
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// RegistryConfig sets up a Registry.
type RegistryConfig struct {
	Repository *repository.Roots
	version.Settings
	// Unusable says that the repository cannot be opened: the registry is not started
	// and answers that it is not ready, nor live.
	Unusable bool
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
	// MaxLoadFiles is how many files and directories may come with a load request, and
	// MaxGroupInstances how many instances SetInstances may give a group; 0 is
	// DefaultLoadFiles and MaxInstances.
	MaxLoadFiles, MaxGroupInstances int
	// Develop has models loaded anew when their sources change, from Start on. The poll interval is 0 then, and the
	// repository looks at sources alone.
	Develop bool
	// Busy reports whether changes of the sources are to wait; nil: they never are.
	Busy func() bool
	// Loads is told of loads; nil: nothing is.
	Loads LoadObserver
	// UnloadTimeout is how long an unload, or the load of a model from something
	// newer, waits for a load that is under way before that is given up; 0: for ever.
	UnloadTimeout time.Duration
}

// LoadObserver is told of loads as they happen, by the goroutines that load. Its methods return at once and
// are called at the same time.
type LoadObserver interface {
	// Planned comes before the loads of the start and names their models.
	Planned(models []string)
	// Began says that a version is being loaded: it does not wait for others any more.
	Began(model string, version int64)
	// Ended says how long the load that Began has taken, and why it has failed unless err is nil.
	Ended(model string, version int64, took time.Duration, err error)
}

// Registry knows the models and runs their requests. It implements
// server.Core.
type Registry struct {
	config RegistryConfig

	catalog *catalog.Catalog
	reader
	troubles troubles

	started  atomic.Bool
	leaving  atomic.Bool // stored by Leave, and never taken back
	loader   *version.Loader
	loading  chan struct{} // holds a value for each version that is being loaded
	ending   panics.WaitGroup
	lifetime context.Context // of what unloading may take
	expire   context.CancelCauseFunc
	uploads  *repository.Uploads
	locks    *catalog.LockTable

	// changes ends when the server is about to exit: loads and unloads are refused
	// then, and those under way are given up.
	changes     context.Context
	stopChanges context.CancelCauseFunc

	sayControl sync.Once // logs why loads and unloads are refused

	gates     *gates         // nil unless models are loaded when their sources change
	polls     sync.WaitGroup // looks at the repository, and what they have begun
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
		loading: make(chan struct{}, config.LoadThreads), uploads: repository.NewUploads(config.Log, config.MaxLoadFiles),
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

// lookup finds the version that a request reaches.
func (r *Registry) lookup(name string, number int64) (*version.Version, error) {
	if !r.started.Load() {
		return nil, errNotReady
	}
	return r.catalog.Find(name, number)
}

// reach finds the version that a request reaches and keeps it open. The caller releases it when
// the scheduler has the request.
func (r *Registry) reach(name string, number int64) (version.Held, error) {
	return held(func() (*version.Version, error) { return r.lookup(name, number) })
}

// held has lookup find a version that can be held, and holds it.
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

// Model returns the version that a request would reach.
func (r *Registry) Model(name string, number int64) (*Info, error) {
	v, err := r.lookup(name, number)
	if err != nil {
		return nil, err
	}
	return v.Info(), nil
}

// ReadyVersions lists the versions of a model that are ready, ascending.
func (r *Registry) ReadyVersions(name string) []int64 {
	return r.catalog.ReadyVersions(name)
}

func (r *Registry) checkExiting() error {
	if r.loader.Exiting() {
		return version.ErrExiting
	}
	return nil
}

// Live reports whether the server works at all, which it does not without a
// repository.
func (r *Registry) Live() (bool, error) {
	err := r.checkExiting()
	return err == nil && !r.config.Unusable, err
}

// Leave says that clients are to go elsewhere: from now on the server is not ready, and serves all the same.
func (r *Registry) Leave() { r.leaving.Store(true) }

// Ready reports whether start-up has finished, Leave has not been called, and, under strict readiness, all
// versions that are known and not unloaded are ready, and so are their
// instances.
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

// InFlight counts the requests in flight in each version that has any.
func (r *Registry) InFlight() map[*Info]int {
	return r.catalog.InFlight()
}

// indexAge is how old the listing of a store may be that an index shows without beginning a new one: a client that asks
// all the time costs four listings in a minute.
const indexAge = 15 * time.Second

// Index lists the repository as the protocol shows it: the models that have a
// directory there, loaded or not. Of what lies in stores it shows the last listing.
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

// Statistics returns the statistics of what is ready.
func (r *Registry) Statistics(name string, number int64) ([]*kserve.ModelStatistics, error) {
	if r.config.Unusable {
		return nil, errNotReady
	}
	return r.catalog.Statistics(name, number)
}

// Attempted lists the models that loading was tried for, by name and version.
func (r *Registry) Attempted() []catalog.Status { return r.catalog.Attempted() }

// VersionStatus is one version of a model that loading was tried for, as operators are shown it.
type VersionStatus struct {
	Name, Namespace string
	Version         int64 // 0: the model has none
	State           string
	Reason          string // of UNAVAILABLE
	InFlight        int    // requests that it has accepted and not answered
	// Info is nil unless the version is loaded, Instances are the names of what it has then.
	Info      *Info
	Instances []string
}

// Overview lists the versions that loading was tried for, by namespace, name and version, and models without any that could
// not even be read. It takes no lock that is held while a model is loaded or ended.
func (r *Registry) Overview() []VersionStatus {
	var list []VersionStatus
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
