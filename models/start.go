package models

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/panics"
)

// Start loads the models that are wanted at startup, LoadThreads at a time, and opens the registry
// to requests. A model that fails does not stop the others. If any failed, the error is a
// *StartError with Internal "failed to load all models", or InvalidArg with the reasons of the
// models that Startup names. With a PollInterval or Develop the registry watches for changes until
// Shutdown.
func (r *Registry) Start(ctx context.Context) error {
	defer r.started.Store(true)
	r.uploads.Sweep()
	ids, rejected, err := r.config.Repository.Scan()
	if err != nil {
		return err
	}
	r.catalog.Learn(ids)
	failed, faults := false, faults{repository: r.config.Repository}
	for _, id := range repository.KeysOf(rejected).Sorted() {
		failed = true
		r.config.Log.Error().Msg(repository.NotUnique(id.String()).Error())
		faults.add(id, repository.NotUnique(id.Name))
	}
	wanted := ids
	byName := r.config.Explicit && !slices.Equal(r.config.Startup, []string{"*"})
	if byName {
		wanted = nil
		for _, name := range r.config.Startup {
			here := slices.DeleteFunc(slices.Clone(ids), func(id repository.Identity) bool { return id.Name != name })
			if len(here) == 0 {
				r.config.Log.Error().Msg(repository.NotFound(name).Error())
				failed = true
				faults.add(repository.Identity{Name: name}, repository.NotFound(name))
			}
			wanted = append(wanted, here...)
		}
	}
	sources, problems := make(map[repository.Identity]*catalog.Source), make(map[repository.Identity]error)
	for _, id := range wanted {
		if _, no := rejected[id]; no {
			continue
		}
		s, err := r.source(id, nil)
		if err != nil {
			problems[id] = err
			continue
		}
		sources[id] = s
	}
	named := repository.KeysOf(sources)
	if r.config.Explicit {
		r.readComposing(ctx, sources, problems)
	}
	for _, id := range repository.KeysOf(problems).Sorted() {
		failed = true
		r.notPolled(id, problems[id])
		faults.add(id, problems[id])
	}
	if o := r.config.Loads; o != nil {
		var planned []string
		for _, id := range repository.KeysOf(sources).Sorted() {
			planned = append(planned, id.String())
		}
		o.Planned(planned)
	}
	if failures := r.bring(ctx, sources, named); len(failures) > 0 || failed {
		err = infer.Errorf(infer.Internal, "failed to load all models")
		if byName {
			err = cmp.Or(outcomes(named, failures), err)
		}
		for _, id := range repository.KeysOf(failures).Sorted() {
			faults.add(id, failures[id])
		}
		err = &StartError{error: err, Faults: faults.list}
	}
	if r.config.Develop {
		r.develop()
	} else if r.config.PollInterval > 0 {
		r.polls.Go(panics.Guard(r.config.Log, panics.Models,
			func() { newPoller(r).run(r.polling, r.config.PollInterval) }, nil))
	}
	return err
}

// bring loads models, independent groups concurrently, waits for all and returns the errors.
func (r *Registry) bring(ctx context.Context, sources map[repository.Identity]*catalog.Source, named repository.Set) map[repository.Identity]error {
	groups := r.catalog.Components(sources)
	failures := make([]map[repository.Identity]error, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Go(panics.Guard(r.config.Log, panics.Models, func() {
			failures[i] = r.bringGroup(ctx, group, sources, named, nil)
		}, func(err error) { failures[i] = map[repository.Identity]error{group[0]: err} }))
	}
	all.Wait()
	together := make(map[repository.Identity]error)
	for _, some := range failures {
		maps.Copy(together, some)
	}
	return together
}

// bringGroup changes some models in one operation and returns the errors.
func (r *Registry) bringGroup(ctx context.Context, group []repository.Identity, sources map[repository.Identity]*catalog.Source, named repository.Set, w *work) map[repository.Identity]error {
	op := r.begin(group[0].Name, nil)
	defer r.locks.End(op)
	c := &change{Registry: r, op: op, sources: make(map[repository.Identity]*catalog.Source), named: named, work: w}
	for _, id := range group {
		c.sources[id] = sources[id]
	}
	held, err := r.hold(ctx, op, r.catalog.Claimed(c.sources))
	if err != nil {
		return map[repository.Identity]error{group[0]: err}
	}
	return c.apply(ctx, held)
}
