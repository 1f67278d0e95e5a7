package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// maxReasonBytes bounds what the log repeats of a request that cannot be read.
const maxReasonBytes = 8 << 10

// errNotPolled is the client's text for whatever is wrong with a model before
// it can be loaded; the log has the reason.
func errNotPolled(name string) error {
	return infer.Errorf(infer.Internal, "failed to load '%s', failed to poll from model repository", name)
}

// Start loads the models that are wanted at start, as many at once as
// LoadThreads allows, and opens the registry to requests. Models that fail do
// not stop the others; if any did, the error is Internal "failed to load all
// models".
func (r *Registry) Start(ctx context.Context) error {
	defer r.started.Store(true)
	names, rejected, err := r.config.Repository.Scan()
	if err != nil {
		return err
	}
	failed := false
	r.mu.Lock()
	for _, name := range names {
		r.modelLocked(name)
	}
	r.mu.Unlock()
	for name, reason := range rejected {
		failed = true
		r.config.Log.Error().Msgf("failed to poll model '%s': %s", name, reason)
	}

	wanted := names
	if r.config.Explicit && !slices.Equal(r.config.Startup, []string{"*"}) {
		wanted = r.config.Startup
	}
	var loads sync.WaitGroup
	outcomes := make([]error, len(wanted))
	for i, name := range wanted {
		if !slices.Contains(names, name) {
			r.config.Log.Error().Msgf("failed to poll model '%s': model not found in any model repository.", name)
			failed = true
			continue
		}
		if _, no := rejected[name]; no {
			continue
		}
		loads.Go(func() { outcomes[i] = r.load(ctx, name, override{}) })
	}
	loads.Wait()
	if failed || errors.Join(outcomes...) != nil {
		return infer.Errorf(infer.Internal, "failed to load all models")
	}
	return nil
}

// Load loads a model, or loads it anew, and returns when it serves or has
// failed to; what served before goes on until then, and beyond if the load
// fails. Config, the JSON of a configuration, replaces that of the repository;
// with files, by their path in the model's directory, nothing of the repository
// is used. A configuration alone is kept: a load without any leaves the model as
// it is until something in its directory changes or it is unloaded.
func (r *Registry) Load(ctx context.Context, name, config string, files map[string][]byte) error {
	if err := r.checkControl(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	o, err := r.override(name, config, files)
	if err != nil {
		return r.notPolled(name, err)
	}
	defer o.upload.drop()
	if o.upload != nil {
		return r.load(ctx, name, o)
	}
	names, rejected, err := r.config.Repository.Scan()
	if err != nil {
		r.config.Log.Error().Msgf("failed to poll model '%s': %v", name, err)
		return errNotPolled(name)
	}
	switch reason, no := rejected[name]; {
	case no:
		r.config.Log.Error().Msgf("failed to poll model '%s': %s", name, reason)
		return errNotPolled(name)
	case !slices.Contains(names, name):
		r.config.Log.Error().Msgf("failed to poll model '%s': model not found in any model repository.", name)
		return errNotPolled(name)
	}
	return r.load(ctx, name, o)
}

// checkName refuses what cannot be the name of a model.
func checkName(name string) error {
	switch trimmed := strings.TrimSpace(name); {
	case trimmed == "":
		return infer.Errorf(infer.InvalidArg, "Model name cannot be empty. Please enter a valid name to deploy.")
	case trimmed == "..", strings.Contains(name, "/"):
		return infer.Errorf(infer.InvalidArg, "invalid model name '%s', model name must not contain path traversal characters", name)
	}
	return nil
}

// notPolled logs why a model cannot even be read and returns what clients see.
func (r *Registry) notPolled(name string, err error) error {
	var parse *ParseError
	if errors.As(err, &parse) {
		r.config.Log.Error().Msgf("%.*s", maxReasonBytes, parse.Detail())
	}
	r.config.Log.Error().Msgf("Poll failed for model directory '%s': %.*s", name, maxReasonBytes, err)
	return errNotPolled(name)
}

func (r *Registry) checkControl() error {
	if err := r.checkExiting(); err != nil {
		return err
	}
	if !r.config.Explicit {
		return infer.Errorf(infer.Unavailable, "explicit model load / unload is not allowed if polling is enabled")
	}
	return nil
}

// modelLocked returns what is known of a model, which may be nothing yet.
func (r *Registry) modelLocked(name string) *model {
	m := r.models[name]
	if m == nil {
		m = &model{name: name, versions: make(map[int64]*version), changing: make(chan struct{}, 1)}
		r.models[name] = m
	}
	return m
}

// load reads a model and brings up its versions; they begin to serve together.
func (r *Registry) load(ctx context.Context, name string, o override) error {
	var d *Description
	var err error
	if o.upload != nil {
		// Of a name that is nowhere else nothing is kept until there is a model.
		if d, err = r.config.Repository.readUpload(name, o); err != nil {
			return r.notPolled(name, err)
		}
	}
	r.mu.Lock()
	m := r.modelLocked(name)
	r.mu.Unlock()
	if err := m.lock(ctx); err != nil {
		return infer.Errorf(infer.Unavailable, "failed to load '%s': %v", name, err)
	}
	defer m.unlock()

	var read *time.Time
	switch {
	case d != nil:
	case o.config != nil:
		d, read, err = r.config.Repository.readConfigured(name, o)
	case m.kept != nil && !r.config.Repository.changed(name, *m.kept):
		return nil
	default:
		d, err = r.config.Repository.Read(name)
	}
	if err != nil {
		return r.notPolled(name, err)
	}
	for _, w := range d.Warnings {
		r.config.Log.Warn().Msg(w)
	}
	if d, err = r.compose(d); err != nil {
		return r.notComposed(name, err)
	}

	r.mu.Lock()
	m.attempted = true
	for _, number := range d.Versions {
		v := m.versions[number]
		if v == nil {
			v = &version{number: number}
			m.versions[number] = v
		}
		if v.state != Ready {
			v.state, v.reason, v.loaded = Loading, "", nil
		}
	}
	r.publishLocked()
	r.mu.Unlock()
	if len(d.Versions) == 0 {
		err := fmt.Sprintf("at least one version must be available under the version policy of model '%s'", name)
		r.config.Log.Error().Msgf("failed to load model '%s': %s", name, err)
		return infer.Errorf(infer.InvalidArg, "load failed for model '%s': %s\n", name, err)
	}

	fresh := make([]*loaded, len(d.Versions))
	outcomes := make([]error, len(d.Versions))
	var loads sync.WaitGroup
	for i, number := range d.Versions {
		loads.Go(func() { fresh[i], outcomes[i] = r.loadVersion(ctx, d, number) })
	}
	loads.Wait()
	if errors.Join(outcomes...) != nil {
		return r.loadFailed(m, d.Versions, fresh, outcomes)
	}

	// All versions change hands at once.
	r.mu.Lock()
	ended := r.retireLocked(m, d.Versions)
	for i, number := range d.Versions {
		v := m.versions[number]
		if v.loaded != nil {
			ended = append(ended, retired{number, v.loaded})
		}
		v.state, v.reason, v.loaded = Ready, "", fresh[i]
	}
	exiting := r.exiting.Load()
	if exiting {
		ended = append(ended, r.retireLocked(m, nil)...)
	}
	m.kept = read
	r.publishLocked()
	r.mu.Unlock()
	r.endLater(m, ended)
	if exiting {
		return infer.Errorf(infer.Unavailable, "Server exiting")
	}
	r.config.Log.Info().Msgf("successfully loaded '%s'", name)
	return nil
}

// loadFailed drops what came up beside what did not. Versions that served
// before go on.
func (r *Registry) loadFailed(m *model, numbers []int64, fresh []*loaded, outcomes []error) error {
	var pieces strings.Builder
	r.mu.Lock()
	for i, number := range numbers {
		v := m.versions[number]
		if v.state != Loading {
			if outcomes[i] != nil {
				fmt.Fprintf(&pieces, "version %d is at UNAVAILABLE state: %s;", number, infer.AsError(outcomes[i]).Status())
			}
			continue
		}
		if outcomes[i] == nil {
			v.state, v.reason = Unavailable, reasonUnloaded
			continue
		}
		v.state, v.reason = Unavailable, infer.AsError(outcomes[i]).Status()
		fmt.Fprintf(&pieces, "version %d is at UNAVAILABLE state: %s;", number, v.reason)
	}
	r.publishLocked()
	r.mu.Unlock()
	for i, l := range fresh {
		if l != nil {
			r.end(m.name, numbers[i], l)
		}
	}
	r.config.Log.Error().Msgf("failed to load '%s'", m.name)
	return infer.Errorf(infer.InvalidArg, "load failed for model '%s': %s\n", m.name, pieces.String())
}

// loadVersion brings up one version, with the retries that are allowed.
func (r *Registry) loadVersion(ctx context.Context, d *Description, number int64) (*loaded, error) {
	select {
	case r.loading <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	slot := sync.OnceFunc(func() { <-r.loading })
	defer slot()
	var err error
	for try := 0; try <= r.config.LoadRetries && ctx.Err() == nil; try++ {
		r.config.Log.Info().Msgf("loading: %s:%d", d.Name, number)
		began := time.Now()
		var l *loaded
		if l, err = r.tryLoad(ctx, d, number, slot); err == nil {
			l.statistics.metrics.Loaded(time.Since(began))
			return l, nil
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", d.Name, number, infer.AsError(err).Status())
	return nil, err
}

func (r *Registry) tryLoad(ctx context.Context, d *Description, number int64, slot func()) (*loaded, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if err := unsupported(d.Config); err != nil {
		return nil, err
	}
	by, err := r.executor(d, number)
	if err != nil {
		return nil, err
	}
	up := &bringing{model: d.Name, slot: slot}
	defer up.end()
	d = by.describe(d)
	m, err := by.backend.Open(by.env(host{r, up}, d, number))
	if err != nil {
		return nil, err
	}
	l, err := r.bringUp(ctx, d, number, m)
	if err != nil {
		// Start leaves nothing after an error; before it there may be something.
		_ = m.Close(ctx)
		return nil, err
	}
	return l, nil
}

// bringUp completes the config of an opened model and starts its instances.
func (r *Registry) bringUp(ctx context.Context, d *Description, number int64, m backend.Model) (*loaded, error) {
	var answer []byte
	if d.Completes() {
		question, err := ConfigJSON(d.Config)
		if err != nil {
			return nil, err
		}
		if answer, err = m.AutoComplete(ctx, question); err != nil {
			return nil, err
		}
	}
	config, json, labels, err := d.Finish(answer)
	if err != nil {
		if answer != nil { // the error alone does not say where the config is from
			r.config.Log.Error().Msgf("the config of model '%s' cannot be used as its auto_complete_config has left it: %.*s",
				d.Name, maxReasonBytes, infer.AsError(err).Message)
		}
		return nil, err
	}
	if err := unsupported(config); err != nil { // with what the model has added
		return nil, err
	}
	for _, what := range ignored(config) {
		r.config.Log.Warn().Msgf("config of model '%s' asks for %s, which this server does not do yet", d.Name, what)
	}
	labels = r.inherit(config, labels)
	info := &Info{Name: d.Name, Version: number, Config: config, JSON: json, Labels: labels}
	counters := r.config.Metrics.Model(d.Name, number, r.metricsOf(config))
	l := &loaded{
		info: info, spec: newRequestSpec(info), model: m,
		statistics: newStatistics(d.Name, number, counters), holds: newHolds(),
	}
	l.cache = r.newCached(l)
	if l.scheduler, err = r.newScheduler(l, d); err != nil {
		counters.Close()
		return nil, err
	}
	l.gate = r.newGate(l, d)
	if err := m.Start(ctx, config, json, r.events(l)); err != nil {
		l.gate.close()
		counters.Close()
		return nil, err
	}
	if err := l.gate.wait(ctx); err != nil {
		l.abandon(ctx)
		return nil, err
	}
	l.gate.admit()
	l.upload = d.upload.hold()
	return l, nil
}
