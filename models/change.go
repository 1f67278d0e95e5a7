package models

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// change is an operation on models that it holds. It takes models from their current state to their
// target state: the parts of ensembles first, all other models concurrently. Dependent ensembles
// follow.
type change struct {
	*Registry
	op *operation
	// sources are the new sources of models; nil: the model is unloaded.
	//
	// bound: the models of the repository, and one uploaded model
	sources map[repository.Identity]*catalog.Source
	work    *work          // of the poll that started the change; nil otherwise
	named   repository.Set // models that were named in the request

	mu       sync.Mutex
	changed  repository.Set                // got other versions, or lost some; bound: affected models
	outcomes map[repository.Identity]error // bound: affected models
}

// apply makes the change and returns the errors by model. The operation holds the models of sources
// and those in held, which include all dependent ensembles.
func (c *change) apply(ctx context.Context, held repository.Set) map[repository.Identity]error {
	c.changed, c.outcomes = make(repository.Set), make(map[repository.Identity]error)
	brings := maps.Clone(c.sources)
	maps.DeleteFunc(brings, func(_ repository.Identity, s *catalog.Source) bool { return s == nil })
	c.locks.Announce(c.op, brings)
	affected, after, replaced := c.catalog.Want(c.sources, c.named, held)
	for _, s := range replaced {
		s.Drop()
	}

	// Each is closed when its model is done; bound: affected models.
	done := make(map[repository.Identity]chan struct{}, len(affected))
	for id := range affected {
		done[id] = make(chan struct{})
	}
	var all sync.WaitGroup
	for _, id := range affected.Sorted() {
		all.Go(panics.Guard(c.config.Log, panics.Models, func() {
			defer close(done[id])
			for _, part := range after[id] {
				<-done[part]
			}
			own := ctx
			if c.work != nil && c.work.contexts[id] != nil {
				own = c.work.contexts[id]
			}
			var changed bool
			err := panics.Run(c.config.Log, panics.Models, func() (err error) {
				changed, err = c.settle(own, id)
				return err
			})
			c.troubles.note(id, err)
			c.mu.Lock()
			defer c.mu.Unlock()
			if changed {
				c.changed[id] = true
			}
			if err != nil {
				c.outcomes[id] = err
			}
		}, nil))
	}
	all.Wait()
	c.forgetSurplus()
	return c.outcomes
}

// forgetSurplus makes the catalog forget the oldest of many models that serve nothing and have no
// directory, if this change may have added one. A model that is locked by an operation, as this
// one's are, is left to the next time.
func (c *change) forgetSurplus() {
	adds := false
	for _, s := range c.sources {
		adds = adds || s == nil || s.Upload != nil
	}
	if !adds {
		return
	}
	surplus := c.catalog.Surplus()
	if len(surplus) == 0 {
		return
	}
	op := c.begin("", nil)
	defer c.locks.End(op)
	held := c.locks.TryLock(op, surplus)
	there := make(repository.Set)
	for _, id := range held {
		if slices.Contains(c.config.Repository.Find(id.Name), id) {
			there[id] = true // bound: surplus
		}
	}
	for _, s := range c.catalog.Discard(held, there) {
		s.Drop()
	}
}

// settle takes one model to its target state.
func (c *change) settle(ctx context.Context, id repository.Identity) (changed bool, err error) {
	given := c.sources[id]
	a := c.catalog.Aim(id, given)
	source := a.Source
	switch {
	case source == nil:
		return a.Ended > 0, nil
	case !source.IsEnsemble() && given == nil:
		return false, nil
	case !source.IsEnsemble():
		return c.load(ctx, id, source, source.Description)
	case a.Invalid != nil:
		return c.invalidate(id, a.Invalid)
	}
	again := given != nil || a.Moved || !a.Served || c.locks.WasTouched(c.op, id)
	c.mu.Lock()
	for _, part := range a.Parts {
		again = again || c.changed[part]
	}
	c.mu.Unlock()
	if !again {
		return false, nil
	}
	d, invalid := c.catalog.Compose(source.Description)
	if invalid != nil {
		return c.invalidate(id, invalid)
	}
	changed, err = c.load(ctx, id, source, d)
	if err != nil && ctx.Err() == nil {
		return c.invalidate(id, err)
	}
	return changed, err
}

// invalidate takes an ensemble out of service that can no longer be composed.
func (r *Registry) invalidate(id repository.Identity, reason error) (changed bool, err error) {
	changed, news := r.catalog.Invalidate(id, reason)
	if news {
		r.config.Log.Error().Msg(infer.AsError(reason).Detailed().Status())
	}
	return changed, reason
}

// hold locks models, and the ensembles that depend on them, for an operation.
func (r *Registry) hold(ctx context.Context, op *operation, needed repository.Set) (held repository.Set, err error) {
	for {
		dependent := r.catalog.Dependents(needed)
		if held, err = r.locks.Lock(ctx, op, needed, dependent); err != nil {
			return nil, err
		}
		// More ensembles may have been added during the wait.
		missing := false
		for id := range r.catalog.Dependents(needed) {
			missing = missing || !dependent[id] && !needed[id]
		}
		if !missing {
			return held, nil
		}
		r.locks.Unlock(op)
	}
}

// outcome returns the first error of the named models, for the caller.
func outcome(targets []repository.Identity, outcomes map[repository.Identity]error) error {
	for _, id := range targets {
		if err := outcomes[id]; err != nil {
			return loadFailedError(id, err)
		}
	}
	return nil
}

// outcomes combines the errors of the models that a start has named, nil without errors.
//
// bound: the models that a flag names, with one error each
func outcomes(targets repository.Set, failures map[repository.Identity]error) error {
	var texts, details strings.Builder
	for _, id := range targets.Sorted() {
		err := failures[id]
		if err == nil {
			continue
		}
		text := loadFailedError(id, err)
		if errors.Is(text, version.ErrExiting) {
			return text
		}
		texts.WriteString(infer.AsError(text).Message)
		details.WriteString(infer.AsError(text).Detailed().Message)
	}
	if texts.Len() == 0 {
		return nil
	}
	return &infer.Error{Code: infer.InvalidArg, Message: texts.String(), Detail: details.String()}
}
