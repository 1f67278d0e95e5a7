package mirror

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/objectstore"
	"github.com/nereid-serving/nereid/panics"
)

// Defaults of Config.
const (
	DefaultStall      = 30 * time.Second
	DefaultMaxObjects = 1 << 20
	DefaultMaxBytes   = 256 << 20
	DefaultParallel   = 8
)

// mostCopies is the number of models that are copied concurrently.
const mostCopies = 4

// Config configures a Mirror.
type Config struct {
	Location objectstore.Location
	Open     objectstore.Opener
	// Workspace holds the copies. It belongs to the caller: mirrors may share one.
	Workspace *copies.Workspace
	// Variable names the environment variable for the workspace's directory, for texts.
	Variable string
	// Texts are names of configuration files, relative to a model's directory: the first existing
	// one is used.
	Texts []string
	// Changed is called when a renewed listing differs from the previous one; may be nil. It
	// returns at once.
	Changed func()
	// Stall is the time without progress after which a call of the store fails. MaxObjects bounds
	// the objects of a listing, Parallel the concurrent reads for one model or listing; 0 is the
	// default. MaxBytes bounds the keys, versions and configurations of a listing.
	Stall                          time.Duration
	MaxObjects, MaxBytes, Parallel int
	Log                            zerolog.Logger
}

// Mirror is one location in a store.
type Mirror struct {
	fetcher
	lifetime context.Context // of renewals
	end      context.CancelFunc
	renewals panics.WaitGroup
	copying  chan struct{} // has a value for each running copy; the buffer bounds them

	mu       sync.Mutex
	models   map[string]*Model // the last complete listing; replaced as a whole. bound: Config.MaxObjects
	listed   time.Time         // when it began
	tried    time.Time         // when the last listing began, complete or not
	renewing bool
	closed   bool
	looked   map[string]*Model // results of Look during a renewal; nil: the model is gone. bound: Config.MaxObjects, and mostGone
	outage   outage
	living   map[string]*living // the newest copy of each model. bound: the models that were listed
}

// Open opens the location and lists it. The error has Triton's text.
func Open(ctx context.Context, config Config) (*Mirror, error) {
	config.Stall = cmp.Or(config.Stall, DefaultStall)
	config.MaxObjects = cmp.Or(config.MaxObjects, DefaultMaxObjects)
	config.MaxBytes = cmp.Or(config.MaxBytes, DefaultMaxBytes)
	config.Parallel = cmp.Or(config.Parallel, DefaultParallel)
	m := &Mirror{fetcher: fetcher{config: config}, living: make(map[string]*living), copying: make(chan struct{}, mostCopies)}
	m.lifetime, m.end = context.WithCancel(context.Background())
	if err := m.open(ctx); err != nil {
		m.end()
		return nil, err
	}
	began := time.Now()
	models, err := m.list(ctx, nil)
	if err != nil {
		m.Close()
		return nil, err
	}
	m.models, m.listed, m.tried = models, began, began
	return m, nil
}

// Close ends renewals and the connections to the store.
func (m *Mirror) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.renewals.Wait()
	_ = m.bucket.Close()
}

// Location returns the location in the store.
func (m *Mirror) Location() objectstore.Location { return m.config.Location }

// Models lists the names of the models in the last complete listing, ascending.
func (m *Mirror) Models() []string {
	m.mu.Lock()
	models := m.models
	m.mu.Unlock()
	return slices.Sorted(maps.Keys(models))
}

// Model returns a model of the last complete listing, or nil.
func (m *Mirror) Model(name string) *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.models[name]
}
