package version

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/cache"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/copies"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/signature"
	"github.com/nereid-serving/nereid/models/statistics"
	"github.com/nereid-serving/nereid/models/warmup"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
	"github.com/nereid-serving/nereid/scheduler/stacked"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// maxLoggedBytes bounds the part of a config that the log repeats.
const maxLoggedBytes = 8 << 10

// Settings are shared by all versions of a server.
type Settings struct {
	// Backends maps the values of a config's backend field to backends.
	Backends map[string]backend.Backend
	// BackendDirectory holds other backends, each in a directory of its name. A backend with a
	// model.py is Python-based: the backend "python" runs it.
	BackendDirectory string
	// Plugins opens the models whose backend is a plugin; may be nil.
	Plugins backend.Backend
	// BackendSettings returns the command line's settings for one Python-based backend; nil without
	// settings.
	BackendSettings func(name string) map[string]string
	// Strategies maps the values of a model's parameter BATCH_STRATEGY to strategies, beside
	// "volume" and "single".
	Strategies map[string]NewStrategy
	// DelayRequests and DelayBacklog delay schedulers until that many requests, or sequences in the
	// backlog, wait: for tests.
	DelayRequests, DelayBacklog int
	// StrictOutputs turns a response whose outputs contradict the configuration into an error.
	StrictOutputs bool
	// MaxQueue limits the requests that wait for one version; 0 is scheduler.DefaultMaxQueue.
	MaxQueue int
	// Limiter makes the instances of all models take turns; may be nil.
	Limiter *ratelimit.Limiter
	// Allocate lends n bytes with one reference for tensors that the server itself makes. Default:
	// the Go heap.
	Allocate stacked.Allocator
	// Padding lends memory for the empty slots of sequences; nil: the Go heap.
	Padding func(n int) ([]byte, infer.Memory, error)
	// Memory is the account for models' labels and states and the texts of stacked batches; nil:
	// they are not charged.
	Memory  *budget.Account
	Metrics *metrics.Registry
	// GPU names a GPU by its number, for metrics; nil: no GPUs.
	GPU func(number int32) string
	// Cache keeps responses of the models whose config allows it; may be nil.
	Cache *cache.Cache
	Log   zerolog.Logger
}

// gpusOf lists the GPUs of a config's instances.
func gpusOf(c *kserve.ModelConfig) (numbers []int32) { // bound: the config
	for _, group := range c.GetInstanceGroup() {
		if group.GetKind() == kserve.ModelInstanceGroup_KIND_GPU {
			numbers = append(numbers, group.GetGpus()...)
		}
	}
	return numbers
}

// Registry is the part of the registry that versions call. Any goroutine may call it at any time.
type Registry interface {
	// Latest returns the highest ready version of the model that a step of an ensemble refers to.
	// It also works during startup.
	Latest(step, ensemble repository.Identity) (*Version, error)
	// Hold returns a version of a model, held; infer.LatestVersion is the highest ready one.
	Hold(model repository.Identity, number int64) (Held, error)
	// Lifetime bounds the ends of versions and of their instances. When it ends, they are ended by
	// force.
	Lifetime() context.Context
	// Ending returns the group of ends that continue after a call has returned.
	Ending() *panics.WaitGroup
}

// Loader brings up versions and holds their shared data. All methods may be called concurrently.
type Loader struct {
	settings Settings
	registry Registry
	graph    *waitgraph.Graph
	exiting  atomic.Bool
}

// NewLoader makes the loader of a registry.
func NewLoader(settings Settings, registry Registry) *Loader {
	if settings.Allocate == nil {
		// bound: for tests; a server's allocator charges
		settings.Allocate = func(n int) ([]byte, infer.Memory, error) { return make([]byte, n), nil, nil }
	}
	settings.Limiter.LogTo(settings.Log)
	return &Loader{settings: settings, registry: registry, graph: waitgraph.New(settings.Log, waitgraph.Patience)}
}

// ErrExiting refuses requests and changes while the server exits.
var ErrExiting = infer.Errorf(infer.Unavailable, "Server exiting")

// Exit makes the versions refuse clients' requests with ErrExiting from now on. Requests of models
// and ensembles still run.
func (l *Loader) Exit() { l.exiting.Store(true) }

// Exiting reports whether Exit has been called.
func (l *Loader) Exiting() bool { return l.exiting.Load() }

// Source is the input of a load.
type Source struct {
	Description *repository.Description
	Version     int64
	// Copy is the model's directory, nil if that lies in the repository. The version uses it until
	// it is closed.
	Copy *copies.Copy
	// Charge is that of a configuration that came with a request, else nil. The version uses it
	// like Copy.
	Charge *budget.Shared
	// Environment holds the archive of the execution environment if that came from an object store,
	// else nil. The version uses it like Copy.
	Environment *copies.Copy
	// Imports record files outside the model's directory that the version's processes import; may
	// be nil.
	Imports *repository.Imports
	// Host is the registry as the instances see it.
	Host backend.Host
}

// Load brings up a version: it completes the config, starts the instances and returns when they are
// warm. After an error nothing is left of the version; clients see the error if it is an
// *infer.Error. When ctx ends, the load is cancelled.
func (l *Loader) Load(ctx context.Context, s Source) (*Version, error) {
	began := time.Now()
	d := s.Description
	if err := d.Check(); err != nil {
		return nil, err
	}
	by, err := l.executor(d, s.Version)
	if err != nil {
		return nil, err
	}
	d = by.describe(d)
	responses := &statistics.Responses{}
	m, err := by.backend.Open(by.env(s, d, responses.Report))
	if err != nil {
		return nil, err
	}
	kept := &budget.Charge{Account: l.settings.Memory}
	var v *Version
	err = panics.Run(l.settings.Log, panics.Models, func() error { return l.bringUp(ctx, d, s.Version, by.plugin, m, responses, kept, &v) })
	if err != nil {
		// Start leaves nothing behind after an error. Steps before it may, and
		// steps after it.
		l.discard(ctx, m)
		v.abandon()
		kept.Settle()
		return nil, err
	}
	v.kept = kept
	v.copy, v.charge, v.archive, v.imports = s.Copy.Hold(), s.Charge.Hold(), s.Environment.Hold(), s.Imports
	v.statistics.Metrics.Loaded(time.Since(began))
	return v, nil
}

// maxSource bounds the bytes of a model.py that are searched for tensor names.
const maxSource = 1 << 20

// warnOfNoTensors warns that a model will refuse each request with inputs, and suggests a
// configuration.
func (l *Loader) warnOfNoTensors(d *repository.Description, number int64) {
	var source []byte
	if f, err := d.Open(); err == nil {
		source, _ = f.ReadStart(filepath.Join(strconv.FormatInt(number, 10), runtimeScript), maxSource) // without it there are no names
		f.Close()
	}
	l.settings.Log.Warn().Msgf("model '%s' has no inputs and no outputs, neither from %s nor from an auto_complete_config: "+
		"each request with an input is refused. To begin with, run nereid check %s --write-config, or write this to the file, with your types and shapes: %s",
		d.Name, filepath.Join(d.Directory, "config.pbtxt"), d.Directory, diagnosis.FirstConfig(source))
}

// warnOfDoubts warns of doubts about a complete configuration, only for the first version.
func (l *Loader) warnOfDoubts(d *repository.Description, number int64, c *kserve.ModelConfig, labels map[string][]string) {
	if number != slices.Min(d.Versions) {
		return
	}
	for _, doubt := range slices.Concat(diagnosis.Doubts(c), diagnosis.LabelDoubts(c, labels)) { // bound: the config
		l.settings.Log.Warn().Msgf("model '%s': %s", d.Identity(), doubt)
	}
}

// discard ends a model that has not come up, by force when ctx has ended.
func (l *Loader) discard(ctx context.Context, m backend.Model) {
	bound, cancel := l.unloading(m)
	defer cancel()
	defer context.AfterFunc(ctx, panics.Guard(l.settings.Log, panics.Models, cancel, nil))()
	_ = m.Close(bound)
}

// unloading returns the context that bounds the end of a model.
func (l *Loader) unloading(m backend.Model) (context.Context, context.CancelFunc) {
	limit := m.Capabilities().UnloadTimeout
	return panics.WithLimit(l.registry.Lifetime(), limit, fmt.Errorf("the unload timeout of %s ran out", limit))
}

// bringUp completes the config of an opened model and starts its instances. After an error, made is
// to be abandoned; it may be nil. kept grows by the labels and initial states of the version.
func (l *Loader) bringUp(ctx context.Context, d *repository.Description, number int64, plugin string, m backend.Model, responses *statistics.Responses, kept *budget.Charge, made **Version) error {
	var answer []byte
	reading := budget.Charge{Account: l.settings.Memory}
	defer reading.Settle()
	if d.Completes() {
		var err error
		if answer, err = m.AutoComplete(ctx, config.JSON(d.Config)); err != nil {
			return err
		}
		if err := cmp.Or(reading.Take(budget.JSON, config.ReadBytes(answer)), kept.Take(budget.JSON, config.KeptBytes(answer))); err != nil {
			return err
		}
	}
	config, json, labels, err := d.Finish(kept, answer)
	reading.Settle()
	if err != nil {
		if answer != nil { // the error alone does not say where the config is from
			l.settings.Log.Error().Msgf("the config of model '%s' is not valid after its auto_complete_config: %.*s",
				d.Name, maxLoggedBytes, infer.AsError(err).Message)
		}
		return err
	}
	if len(config.GetInput()) == 0 && len(config.GetOutput()) == 0 && !d.IsEnsemble() {
		l.warnOfNoTensors(d, number)
	}
	l.warnOfDoubts(d, number, config, labels)
	states, warnings, err := readStates(kept, d, config)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		l.settings.Log.Warn().Msg(w)
	}
	labels = l.inherit(d.Identity(), config, labels)
	info := &Info{Name: d.Name, Namespace: d.Namespace, Version: number, Plugin: plugin, Config: config, JSON: json, Labels: labels}
	counters := l.settings.Metrics.Model(d.Name, number, l.metricsOf(d.Namespace, config))
	v := &Version{
		loader: l,
		info:   info, spec: signature.New(d.Name, config), model: m, can: m.Capabilities(), states: states,
		statistics: statistics.New(d.Name, number, counters, responses), holds: newHolds(), log: l.settings.Log,
	}
	if !d.IsEnsemble() {
		v.odd = &oddOutputs{told: make(map[string]bool)}
	}
	if l.settings.GPU != nil {
		v.statistics.CountGPUs(gpusOf(config), l.settings.GPU)
	}
	v.cache = l.newCached(v)
	if v.scheduler, err = l.newScheduler(v, d); err != nil {
		counters.Close()
		return err
	}
	v.mapper = v.newMapper()
	v.barrier = l.newBarrier(v, d)
	*made = v
	return v.start(ctx, l.events(v), l.settings.Limiter)
}

// Examination is the findings of a load up to the point where the model's code would run.
type Examination struct {
	// Config is the configuration without the model's auto-complete; nil if that is incomplete.
	Config *kserve.ModelConfig
	// Labels are those of the outputs in Config, by name.
	Labels map[string][]string
	// Plugin is the program of a backend that is one, else "".
	Plugin string
	// Errors would fail the load, whatever the model's code does.
	Errors []error // bound: the steps of Examine
	// Incomplete would fail the load unless the model's auto-complete repairs it; nil if the
	// configuration is complete.
	Incomplete error
	// Warnings are lines for the log.
	Warnings []string // bound: the config
}

// Examine does the work of Load on the files of a version. It starts no process, and continues
// where Load returns an error.
func (l *Loader) Examine(ctx context.Context, s Source) (e Examination) {
	d := s.Description
	add := func(err error) bool {
		if err != nil {
			e.Errors = append(e.Errors, err)
		}
		return err == nil
	}
	add(d.Check())
	by, err := l.executor(d, s.Version)
	if add(err) {
		e.Plugin = by.plugin
		d = by.describe(d)
		m, err := by.backend.Open(by.env(s, d, nil))
		if add(err) {
			defer l.discard(ctx, m)
		}
	}
	if e.Config, _, e.Labels, err = d.Finish(nil, nil); err != nil {
		e.Incomplete = err
		return e
	}
	_, warnings, err := readStates(nil, d, e.Config)
	add(err)
	e.Warnings = append(e.Warnings, warnings...)
	if e.Config.GetPlatform() == config.PlatformEnsemble {
		return e
	}
	add(refuseLibrary(e.Config, d, s.Version))
	if len(e.Config.GetInput()) > 0 {
		samples := &warmup.Samples{
			Configured: e.Config.GetModelWarmup(), Signature: signature.New(d.Name, e.Config), Model: d.Name, Version: s.Version, Open: d.Open, Memory: l.settings.Memory, Log: l.settings.Log,
		}
		add(samples.Check())
	}
	return e
}
