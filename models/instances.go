package models

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// InstanceState is one instance of a serving version.
type InstanceState struct {
	Version int64
	Name    string
	// Draining reports that the instance receives no more work and ends when it is idle.
	Draining bool
}

// SetInstances changes the count of a group of a model's instances, in all serving versions. An
// empty group names the only group. It returns the instances once the new ones serve. Surplus
// instances finish their work and end later. If a new instance does not come up, nothing changes.
// The count holds until the model is reloaded or loaded from another configuration. It is refused,
// with Unavailable, unless clients control models.
func (r *Registry) SetInstances(ctx context.Context, name, group string, count int) ([]InstanceState, error) {
	if err := r.checkExiting(); err != nil {
		return nil, err
	}
	most := r.config.Memory.Limits().GroupInstances
	switch {
	case !r.config.Explicit:
		return nil, infer.Errorf(infer.Unavailable, "instances can be changed in model control mode explicit only")
	case count < 1 || count > most:
		return nil, infer.Errorf(infer.InvalidArg, "instances of model '%s': 'count' is %d, want a whole number from 1 to %d", name, count, most)
	}
	id, err := r.servedAs(name)
	if err != nil {
		return nil, err
	}
	op := r.begin(name, nil)
	defer r.locks.End(op)
	ctx, stop := r.changing(ctx, op)
	defer stop()
	if _, err := r.locks.Lock(ctx, op, repository.SetOf(id), nil); err != nil {
		return nil, infer.Errorf(infer.Unavailable, "failed to change the instances of '%s': %v", name, err)
	}
	r.locks.Announce(op, map[repository.Identity]*catalog.Source{id: nil})
	updates, err := r.setCount(ctx, id, group, int32(count))
	if err != nil {
		return nil, err
	}
	return r.commitCount(id, updates)
}

// servedAs returns the serving model with the given name.
func (r *Registry) servedAs(name string) (repository.Identity, error) {
	if _, err := r.lookup(name, infer.LatestVersion); err != nil {
		if _, known := r.catalog.Named(name); !known {
			err = infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name) // the same text with namespaces
		}
		return repository.Identity{}, err
	}
	id, _ := r.catalog.Named(name)
	return id, nil
}

// setCount prepares another count for a group, in all serving versions.
func (r *Registry) setCount(ctx context.Context, id repository.Identity, group string, count int32) ([]*version.Exchange, error) {
	serving := r.catalog.Ready(id)
	if len(serving) == 0 { // it was unloaded by another operation
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", id.Name)
	}
	updates := make([]*version.Exchange, len(serving)) // bound: the versions of the model
	failures := make([]error, len(serving))            // bound: the versions of the model
	var all sync.WaitGroup
	for i, v := range serving {
		all.Go(panics.Guard(r.config.Log, panics.Models, func() {
			updates[i], failures[i] = v.Resize(ctx, group, count)
		}, func(err error) { failures[i] = err }))
	}
	all.Wait()
	if err := errors.Join(failures...); err == nil {
		return updates, nil
	}
	first := slices.IndexFunc(failures, func(err error) bool { return err != nil })
	for _, u := range updates {
		u.Drop()
	}
	return nil, failures[first]
}

// commitCount switches versions to their new instances and updates the model's configuration.
func (r *Registry) commitCount(id repository.Identity, updates []*version.Exchange) ([]InstanceState, error) {
	r.ending.Add() // Shutdown also waits for instances ended by this
	defer r.ending.Done()
	if !r.catalog.Exchange(id, updates) {
		for _, u := range updates {
			u.Drop()
		}
		return nil, version.ErrExiting
	}
	var states []InstanceState // bound: the instances
	for _, u := range updates {
		left := u.Commit()
		number := u.After().Info().Version
		for _, name := range u.After().Instances() {
			states = append(states, InstanceState{number, name, false})
		}
		for _, name := range left {
			states = append(states, InstanceState{number, name, true})
		}
	}
	return states, nil
}
