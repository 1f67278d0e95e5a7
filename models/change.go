package models

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// change is an operation on models that it holds. Models are brought from what
// they are served from to what they are wanted to be: those that others are
// composed of first, all others side by side. Ensembles above follow.
type change struct {
	*Registry
	op *operation
	// sources are what models are wanted to be served from from now on; nil: not at
	// all.
	sources map[repository.Identity]*source
	// contexts bound the loads of single models, where they end before that of the
	// operation.
	contexts map[repository.Identity]context.Context
	named    repository.Set // are loaded because they were named

	mu       sync.Mutex
	changed  repository.Set // got other versions, or lost some
	outcomes map[repository.Identity]error
}

// apply makes the change and returns what went wrong, by model. The operation
// holds the models of sources and those in held, among which are all ensembles
// above.
func (c *change) apply(ctx context.Context, held repository.Set) map[repository.Identity]error {
	c.changed, c.outcomes = make(repository.Set), make(map[repository.Identity]error)
	brings := maps.Clone(c.sources)
	maps.DeleteFunc(brings, func(_ repository.Identity, s *source) bool { return s == nil })
	c.locks.Announce(c.op, brings)
	affected, after, replaced := c.want(held)
	for _, u := range replaced {
		u.Drop()
	}

	done := make(map[repository.Identity]chan struct{}, len(affected)) // closed when a model is
	for id := range affected {
		done[id] = make(chan struct{})
	}
	var all sync.WaitGroup
	for _, id := range affected.Sorted() {
		all.Go(boundary.Guard(c.config.Log, boundary.Models, func() {
			defer close(done[id])
			for _, part := range after[id] {
				<-done[part]
			}
			own := ctx
			if c.contexts[id] != nil {
				own = c.contexts[id]
			}
			var changed bool
			err := boundary.Run(c.config.Log, boundary.Models, func() (err error) {
				changed, err = c.settle(own, id)
				return err
			})
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
	return c.outcomes
}

// want has the models of the change be wanted as they are to be. It returns all that
// are affected, by each of them those that have to be done before, and the uploads that
// are not used any more.
func (c *change) want(held repository.Set) (affected repository.Set, after map[repository.Identity][]repository.Identity, replaced []*repository.Upload) {
	c.Registry.mu.Lock()
	defer c.Registry.mu.Unlock()
	affected = make(repository.Set)
	for id, s := range c.sources {
		affected[id] = true
		m := c.modelLocked(id)
		replaced = append(replaced, m.want(s))
		m.failure = ""
		m.named = s != nil && (m.named || c.named[id])
		if s == nil || !s.IsEnsemble() {
			m.invalid = nil
		}
	}
	for id := range c.dependentsLocked(affected) {
		if held[id] {
			affected[id] = true
		}
	}
	after = make(map[repository.Identity][]repository.Identity)
	for id := range affected {
		if m := c.models[id]; c.circleLocked(m) == nil {
			for _, part := range c.composingLocked(m) {
				if affected[part.id] {
					after[id] = append(after[id], part.id)
				}
			}
		}
	}
	return affected, after, replaced
}

// settle brings one model to what it is wanted to be.
func (c *change) settle(ctx context.Context, id repository.Identity) (changed bool, err error) {
	r := c.Registry
	a := c.aim(id)
	m, source, fresh := a.model, a.source, a.fresh
	switch {
	case source == nil:
		return a.ended > 0, nil
	case !source.IsEnsemble() && !fresh:
		return false, nil
	case !source.IsEnsemble():
		return c.load(ctx, m, source, source.Description)
	case a.invalid != nil:
		return r.invalidate(m, a.invalid)
	}
	again := fresh || a.moved || m.served == nil || r.locks.WasTouched(c.op, id)
	c.mu.Lock()
	for _, part := range a.parts {
		again = again || c.changed[part.id]
	}
	c.mu.Unlock()
	if !again {
		return false, nil
	}
	d, invalid := r.compose(source.Description)
	if invalid != nil {
		return r.invalidate(m, invalid)
	}
	changed, err = c.load(ctx, m, source, d)
	if err != nil && ctx.Err() == nil {
		return r.invalidate(m, err)
	}
	return changed, err
}

// aim is what a model is to become.
type aim struct {
	model   *model
	source  *source // nil: it is not wanted, and so many of its versions are ended
	ended   int
	fresh   bool
	parts   []*model // of an ensemble
	moved   bool     // its steps mean other models than those that it calls
	invalid error    // why an ensemble cannot be composed
}

// aim looks up what a model is to become, and takes one out of service that is not
// wanted.
func (c *change) aim(id repository.Identity) (a aim) {
	r := c.Registry
	r.mu.Lock()
	defer r.mu.Unlock()
	a.model = r.models[id]
	if a.model.wanted == nil {
		ended := r.withdrawLocked(a.model)
		r.endLaterLocked(a.model, ended)
		a.ended = len(ended)
		return a
	}
	if a.source, a.fresh = c.sources[id]; a.source == nil {
		a.source = a.model.wanted
	}
	if a.source.IsEnsemble() {
		a.parts = r.composingLocked(a.model)
		a.moved = a.model.callsOthersLocked(a.parts)
		if a.invalid = r.checkDependenciesLocked(a.model); a.invalid == nil {
			a.model.invalid = nil
		}
	}
	return a
}

// invalidate takes an ensemble out of service that cannot be composed any more.
// It waits for its models.
func (r *Registry) invalidate(m *model, reason error) (changed bool, err error) {
	r.mu.Lock()
	if m.invalid == nil || m.invalid.Error() != reason.Error() {
		r.config.Log.Error().Msg(infer.AsError(reason).Status())
	}
	m.invalid = reason
	ended := r.withdrawLocked(m)
	r.endLaterLocked(m, ended)
	r.mu.Unlock()
	return len(ended) > 0, reason
}

// hold has an operation take models, and the ensembles that depend on them.
func (r *Registry) hold(ctx context.Context, op *operation, needed repository.Set) (held repository.Set, err error) {
	for {
		dependent := r.dependents(needed)
		if held, err = r.locks.Lock(ctx, op, needed, dependent); err != nil {
			return nil, err
		}
		// While it waited, there may have come more.
		missing := false
		for id := range r.dependents(needed) {
			missing = missing || !dependent[id] && !needed[id]
		}
		if !missing {
			return held, nil
		}
		r.locks.Unlock(op)
	}
}

// outcome is what the caller learns of the models that it has named: the first
// thing that went wrong.
func outcome(targets []repository.Identity, outcomes map[repository.Identity]error) error {
	for _, id := range targets {
		if err := outcomes[id]; err != nil {
			return loadFailedError(id, err)
		}
	}
	return nil
}

// outcomes is what is said of all models that a start has named; nil if nothing
// went wrong with them.
func outcomes(targets repository.Set, failures map[repository.Identity]error) error {
	var texts strings.Builder
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
	}
	if texts.Len() == 0 {
		return nil
	}
	return infer.Errorf(infer.InvalidArg, "%s", texts.String())
}
