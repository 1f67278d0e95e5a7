package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// maxReasonBytes bounds what the log repeats of a request that cannot be read.
const maxReasonBytes = 8 << 10

// load brings a model from what it is served from to another source, of which d
// is what the backend is shown. All that it needs anew begins to serve together,
// or nothing does; what served before goes on until then. An ensemble is loaded as
// a whole: its models may have changed. The error says for each version what has
// failed, or is ErrExiting.
func (c *change) load(ctx context.Context, m *model, s *source, d *repository.Description) (changed bool, err error) {
	r, all := c.Registry, s.IsEnsemble()
	for _, w := range s.Warnings {
		r.config.Log.Warn().Msg(w)
	}
	p, fresh, serving := r.beginLoad(m, s, all)
	if len(s.Versions) == 0 {
		err := infer.Errorf(infer.InvalidArg, "at least one version must be available under the version policy of model '%s'", s.Name)
		r.config.Log.Error().Msgf("failed to load model '%s': %s", m.id, err.Message)
		r.restore(m, s, err.Message)
		return false, err
	}

	results := make([]result, len(fresh))
	var loads sync.WaitGroup
	for i, number := range fresh {
		loads.Go(boundary.Guard(r.config.Log, boundary.Models, func() {
			if serving[i] != nil {
				if u, can, err := serving[i].Update(ctx, d); can {
					results[i] = result{number: number, update: u, updated: true, err: err}
					return
				}
			}
			v, err := r.loadVersion(ctx, c.op, d, number, s.upload)
			results[i] = result{number: number, loaded: v, err: err}
		}, func(err error) { results[i] = result{number: number, updated: serving[i] != nil, err: err} }))
	}
	loads.Wait()
	if errors.Is(context.Cause(ctx), errOvertaken) {
		for i := range results { // some came up all the same
			if results[i].err == nil && !results[i].updated {
				r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", m.id, results[i].number, errOvertaken.Status())
				results[i].err = errOvertaken
			}
		}
	}
	if slices.ContainsFunc(results, func(x result) bool { return x.err != nil }) {
		return false, r.loadFailed(m, s, results)
	}
	if exiting := r.commit(m, s, results); exiting {
		return true, version.ErrExiting
	}
	if len(fresh) > 0 {
		r.config.Log.Info().Msgf("successfully loaded '%s'", m.id)
	}
	return len(fresh)+len(p.leave) > 0, nil
}

// beginLoad shows the versions that are to be loaded as loading. It returns what the
// change is, which versions are fresh in it, and of them those that are to be updated.
func (r *Registry) beginLoad(m *model, s *source, all bool) (p plan, fresh []int64, serving []*version.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.attempted = true
	was := m.served
	if all {
		was = nil
	}
	p = planChange(was, s, m.readyLocked())
	fresh = slices.Sorted(slices.Values(slices.Concat(p.load, p.update)))
	serving = make([]*version.Version, len(fresh))
	for i, number := range fresh {
		v := m.versions[number]
		if v == nil {
			v = &entry{number: number}
			m.versions[number] = v
		}
		if v.state != Ready {
			v.state, v.reason, v.loaded = Loading, "", nil
		} else if slices.Contains(p.update, number) {
			serving[i] = v.loaded
		}
	}
	r.publishLocked()
	return p, fresh, serving
}

// result is what has become of one version.
type result struct {
	number int64
	loaded *version.Version // nil after an error
	// updated says that this is no other version but one that served and is to have
	// other instances, by update unless there is an error.
	updated bool
	update  *version.Exchange
	err     error
}

// commit has all versions change hands at once. It reports whether the server
// exits: then nothing serves.
func (r *Registry) commit(m *model, s *source, results []result) (exiting bool) {
	r.mu.Lock()
	ended := r.retireLocked(m, s.Versions)
	for _, x := range results {
		v := m.versions[x.number]
		if x.update != nil {
			v.loaded = x.update.After()
			continue
		}
		if v.state == Ready { // else the server exits and has ended it
			ended = append(ended, retired{x.number, v.loaded})
		}
		v.state, v.reason, v.loaded = Ready, "", x.loaded
	}
	exiting = r.loader.Exiting()
	if exiting {
		ended = append(ended, r.retireLocked(m, nil)...)
	}
	m.served, m.failure = s, ""
	r.publishLocked()
	r.ending.Add() // Shutdown waits for what is ended by this, too
	defer r.ending.Done()
	r.endLaterLocked(m, ended)
	r.mu.Unlock()
	for _, x := range results {
		_ = x.update.Commit()
	}
	return exiting
}

// loadFailed drops what came up beside what did not. Versions that served before
// go on.
func (r *Registry) loadFailed(m *model, s *source, results []result) error {
	var pieces strings.Builder
	r.mu.Lock()
	for _, x := range results {
		v := m.versions[x.number]
		reason := ""
		if errors.Is(x.err, errOvertaken) {
			reason = errOvertaken.Message
		} else if x.err != nil {
			reason = infer.AsError(x.err).Status()
		}
		state := Unavailable
		if x.updated {
			state = Ready
		}
		if x.err != nil {
			fmt.Fprintf(&pieces, "version %d is at %s state: %s;", x.number, state, reason)
		}
		switch {
		case v.state != Loading: // it serves on
		case x.err != nil:
			v.state, v.reason = Unavailable, reason
		default:
			v.state, v.reason = Unavailable, reasonUnloaded
		}
	}
	r.publishLocked()
	r.mu.Unlock()
	for _, x := range results {
		if x.loaded != nil {
			r.end(m, x.number, x.loaded)
		}
		x.update.Drop()
	}
	r.restore(m, s, pieces.String())
	if r.loader.Exiting() { // what it was made of may have gone already
		return version.ErrExiting
	}
	r.config.Log.Error().Msgf("failed to load '%s'", m.id)
	return infer.Errorf(infer.InvalidArg, "%s", pieces.String())
}

// restore has a model that could not be loaded be wanted as it is served; if it
// is not, it is tried again at every poll and request, but for what has come with a
// request.
func (r *Registry) restore(m *model, s *source, failure string) {
	r.mu.Lock()
	m.failure = failure
	var replaced *repository.Upload
	if m.served != nil || s.upload != nil && !s.IsEnsemble() {
		replaced = m.want(m.served)
	}
	r.mu.Unlock()
	replaced.Drop()
}

// loadVersion brings up one version, with the retries that are allowed.
func (r *Registry) loadVersion(ctx context.Context, op *operation, d *repository.Description, number int64, upload *repository.Upload) (*version.Version, error) {
	select {
	case r.loading <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	slot := sync.OnceFunc(func() { <-r.loading })
	defer slot()
	var err error
	for try := 0; try <= r.config.LoadRetries && ctx.Err() == nil; try++ {
		r.config.Log.Info().Msgf("loading: %s:%d", d.Identity(), number)
		var v *version.Version
		if v, err = r.tryLoad(ctx, op, d, number, upload, slot); err == nil {
			return v, nil
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.config.Log.Error().Msgf("failed to load '%s' version %d: %s", d.Identity(), number, infer.AsError(err).Status())
	return nil, err
}

func (r *Registry) tryLoad(ctx context.Context, op *operation, d *repository.Description, number int64, upload *repository.Upload, slot func()) (*version.Version, error) {
	up := &bringing{model: d.Name, op: op, slot: slot}
	defer up.end()
	return r.loader.Load(ctx, version.Source{Description: d, Version: number, Upload: upload, Host: host{r, up}})
}
