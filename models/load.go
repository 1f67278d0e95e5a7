package models

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/diagnosis"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// maxReasonBytes bounds the part of an unreadable request that the log repeats.
const maxReasonBytes = 8 << 10

// versionsAtOnce is the number of goroutines that bring up versions of one model, unless more may
// load. Most only wait; a request may bring thousands of versions.
const versionsAtOnce = 64

// load loads a model from another source. d is the description that the backend receives. All new
// versions begin to serve together, or none does; the old ones serve until then. An ensemble is
// loaded as a whole, because its models may have changed. The error names the failure of each
// version, or is ErrExiting.
func (c *change) load(ctx context.Context, id repository.Identity, s *catalog.Source, d *repository.Description) (changed bool, err error) {
	r := c.Registry
	for _, w := range s.Warnings {
		r.config.Log.Warn().Msg(w)
	}
	for _, d := range s.Doubts {
		r.config.Log.Warn().Msgf("model '%s': %s", id, d)
	}
	fresh, serving, leave := r.catalog.Begin(id, s)
	files := &fetched{fetch: func() (repository.Fetched, error) {
		return r.roots.Fetch(ctx, d, s.Files, c.work.reread(id))
	}}
	defer func() { files.got.Drop() }() // the versions hold them by then
	if slices.Contains(serving, nil) {
		if now := files.successor(s); now != nil { // the model changed while it was copied
			begun := fresh
			s, d = now, now.Description
			r.catalog.Turn(id, s, begun).Drop()
			fresh, serving, leave = r.catalog.Begin(id, s)
		}
	}
	if len(s.Versions) == 0 {
		err := infer.Errorf(infer.InvalidArg, "at least one version must be available under the version policy of model '%s'", s.Name)
		r.config.Log.Error().Msgf("failed to load model '%s': %s", id, err.Message)
		r.restore(id, s, err.Message)
		return false, err
	}

	results := make([]catalog.Result, len(fresh)) // bound: the versions of the model
	short := func(err error) error { return shortened(err, len(fresh)) }
	room := make(chan struct{}, max(versionsAtOnce, cap(r.loading))) // bound: a flag; one value for each goroutine
	var loads sync.WaitGroup
	for i, number := range fresh {
		room <- struct{}{}
		loads.Go(panics.Guard(r.config.Log, panics.Models, func() {
			defer func() { <-room }()
			if serving[i] != nil {
				if u, can, err := serving[i].Regroup(ctx, d); can {
					results[i] = catalog.Result{Number: number, Exchange: u, Exchanged: true, Err: short(err)}
					return
				}
			}
			local, err := files.get(s)
			if err != nil {
				r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", id, number, infer.AsError(err).Detailed().Status())
				results[i] = catalog.Result{Number: number, Err: short(err)}
				return
			}
			var imports *repository.Imports
			if r.config.Develop {
				imports = repository.NewImports()
			}
			v, err := r.loadVersion(ctx, c.op, version.Source{
				Description: local.Description, Version: number, Copy: cmp.Or(s.Upload, local.Copy), Charge: s.Charge, Environment: local.Environment, Imports: imports,
			})
			results[i] = catalog.Result{Number: number, Loaded: v, Err: short(err), Imports: imports}
		}, func(err error) { results[i] = catalog.Result{Number: number, Exchanged: serving[i] != nil, Err: err} }))
	}
	loads.Wait()
	if errors.Is(context.Cause(ctx), errOvertaken) {
		for i := range results { // some came up nevertheless
			if results[i].Err == nil && !results[i].Exchanged {
				r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", id, results[i].Number, errOvertaken.Status())
				results[i].Err = errOvertaken
			}
		}
	}
	if slices.ContainsFunc(results, func(x catalog.Result) bool { return x.Err != nil }) {
		return false, r.loadFailed(id, s, results)
	}
	if exiting := r.commit(id, s, results); exiting {
		return true, version.ErrExiting
	}
	if len(fresh) > 0 {
		r.config.Log.Info().Msgf("successfully loaded '%s'", id)
	}
	return len(fresh) > 0 || leave, nil
}

// commit switches all versions at once. It reports whether the server is exiting; then nothing
// serves.
func (r *Registry) commit(id repository.Identity, s *catalog.Source, results []catalog.Result) (exiting bool) {
	r.ending.Add() // Shutdown also waits for versions ended by this
	defer r.ending.Done()
	exiting = r.catalog.Commit(id, s, results)
	for _, x := range results {
		_ = x.Exchange.Commit()
	}
	return exiting
}

// loadFailed discards versions that came up beside failed ones. Versions that served before
// continue.
func (r *Registry) loadFailed(id repository.Identity, s *catalog.Source, results []catalog.Result) error {
	told := r.catalog.Fail(id, results, func(err error) string {
		if errors.Is(err, errOvertaken) {
			return errOvertaken.Message
		}
		return infer.AsError(err).Status()
	})
	for _, x := range results {
		if x.Loaded != nil {
			r.end(id, x.Number, x.Loaded)
		}
		x.Exchange.Drop()
	}
	r.restore(id, s, told.Message)
	if r.loader.Exiting() { // its sources may be gone already
		return version.ErrExiting
	}
	r.config.Log.Error().Msgf("failed to load '%s'", id)
	return told
}

// restore makes a model that could not be loaded wanted as it is served.
func (r *Registry) restore(id repository.Identity, s *catalog.Source, failure string) {
	r.catalog.Restore(id, s, failure).Drop()
}

// loadVersion brings up one version, with the configured retries.
func (r *Registry) loadVersion(ctx context.Context, op *operation, s version.Source) (*version.Version, error) {
	d, number := s.Description, s.Version
	select {
	case r.loading <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	slot := sync.OnceFunc(func() { <-r.loading })
	defer slot()
	var err error
	var fault *diagnosis.Fault
	if o := r.config.Loads; o != nil {
		began := time.Now()
		o.Began(d.Identity().String(), number)
		defer func() { o.Ended(d.Identity().String(), number, time.Since(began), fault) }()
	}
	for try := 0; try <= r.config.LoadRetries && ctx.Err() == nil; try++ {
		r.config.Log.Info().Msgf("loading: %s:%d", d.Identity(), number)
		var v *version.Version
		if v, err = r.tryLoad(ctx, op, s, slot); err == nil {
			return v, nil
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", d.Identity(), number, infer.AsError(err).Detailed().Status())
	if fault = diagnosis.OfVersion(d.Identity().String(), number, d.Directory, err); fault.Remedy != "" {
		r.config.Log.Error().Msgf("model '%s' version %d: %s", d.Identity(), number, fault.Remedy)
	}
	return nil, err
}

func (r *Registry) tryLoad(ctx context.Context, op *operation, s version.Source, slot func()) (*version.Version, error) {
	up := &loadInProgress{model: s.Description.Name, op: op, slot: slot}
	defer up.end()
	s.Host = host{r, up}
	return r.loader.Load(ctx, s)
}

// fetched are the files of a model that is being loaded. Files in a store are copied when the first
// version needs them, once for all versions. Versions that only exchange instances need none.
type fetched struct {
	fetch func() (repository.Fetched, error)

	once sync.Once
	got  repository.Fetched
	err  error
}

// do fetches once. The fields below once are read after it.
func (f *fetched) do() {
	f.once.Do(func() { f.got, f.err = f.fetch() })
}

// successor fetches, and returns the source that was read if it differs from s. It returns nil if
// it is s, or after an error, which get returns.
func (f *fetched) successor(s *catalog.Source) *catalog.Source {
	f.do()
	if f.err != nil || !f.got.Any() || s.Files.Same(f.got.Files) {
		return nil
	}
	if s.IsEnsemble() || f.got.IsEnsemble() { // it may call other models, which this operation has not locked
		f.err = infer.Errorf(infer.Unavailable, "the ensemble '%s' has changed while it was copied: load it again", s.Name)
		return nil
	}
	return &catalog.Source{Description: f.got.Description, Charge: s.Charge, Files: f.got.Files}
}

// get returns the model of s with its local directory.
func (f *fetched) get(s *catalog.Source) (repository.Fetched, error) {
	f.do()
	switch {
	case f.err != nil:
		return f.got, f.err
	case f.got.Any() && !s.Files.Same(f.got.Files): // it was fetched for a version that could not exchange its instances
		return f.got, infer.Errorf(infer.Unavailable, "model '%s' has changed while it was copied: load it again", s.Name)
	}
	return f.got, nil
}
