package models

import (
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
)

// resolveLocked finds the model that a step of an ensemble means, among those
// that are to be served. Without a namespace it is the ensemble's neighbour, or
// the only one of that name.
func (r *Registry) resolveLocked(step repository.Identity, ensemble repository.Identity) *model {
	wanted := func(id repository.Identity) *model {
		if m := r.models[id]; m != nil && m.wanted != nil {
			return m
		}
		return nil
	}
	if step.Namespace != "" || !r.config.Repository.Namespacing() {
		return wanted(step)
	}
	if m := wanted(repository.Identity{Namespace: ensemble.Namespace, Name: step.Name}); m != nil {
		return m
	}
	var only *model
	for id, m := range r.models {
		if id.Name == step.Name && m.wanted != nil {
			if only != nil {
				return nil
			}
			only = m
		}
	}
	return only
}

// composingLocked are the models that an ensemble that is to be served is
// composed of, as far as they are to be served too.
func (r *Registry) composingLocked(m *model) []*model {
	if m.wanted == nil || !m.wanted.IsEnsemble() {
		return nil
	}
	var list []*model
	for step := range m.wanted.Composing() {
		if c := r.resolveLocked(step, m.id); c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// callsOthersLocked reports whether an ensemble that serves was loaded to call other
// models than its steps mean now, where these are parts.
func (m *model) callsOthersLocked(parts []*model) bool {
	now := make(repository.Set, len(parts))
	for _, part := range parts {
		now[part.id] = true
	}
	for _, v := range m.versions {
		if v.state == Ready && !maps.Equal(v.parts, now) {
			return true
		}
	}
	return false
}

// dependentsLocked are the ensembles that depend on any of the models, over any
// number of others, whether they are served or wait for what is missing.
func (r *Registry) dependentsLocked(of repository.Set) repository.Set {
	users := make(map[repository.Identity][]repository.Identity)
	for id, m := range r.models {
		if m.wanted == nil || !m.wanted.IsEnsemble() {
			continue
		}
		for step := range m.wanted.Composing() {
			// What is missing or ambiguous now may be resolved otherwise soon.
			for _, at := range r.candidates(step, id) {
				users[at] = append(users[at], id)
			}
		}
	}
	found := make(repository.Set)
	todo := slices.Collect(maps.Keys(of))
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, user := range users[id] {
			if !found[user] {
				found[user] = true
				todo = append(todo, user)
			}
		}
	}
	return found
}

// candidates are the models that a step of an ensemble may mean.
func (r *Registry) candidates(step, ensemble repository.Identity) []repository.Identity {
	if step.Namespace != "" || !r.config.Repository.Namespacing() {
		return []repository.Identity{step}
	}
	var list []repository.Identity
	for _, namespace := range r.config.Repository.Namespaces() {
		list = append(list, repository.Identity{Namespace: namespace, Name: step.Name})
	}
	return list
}

// checkDependenciesLocked says what keeps an ensemble from being served: models
// that are missing, that depend on it in turn, or that do not serve.
func (r *Registry) checkDependenciesLocked(m *model) error {
	composing := m.wanted.Composing()
	steps := slices.SortedFunc(maps.Keys(composing), repository.Identity.Compare)
	var missing []string
	for _, step := range steps {
		if r.resolveLocked(step, m.id) == nil {
			missing = append(missing, step.Name)
		}
	}
	if len(missing) > 0 {
		return infer.Errorf(infer.InvalidArg, "ensemble %s contains models that are not available or ambiguous: %s", m.id, strings.Join(missing, ", "))
	}
	if last := r.circleLocked(m); last != nil {
		return infer.Errorf(infer.InvalidArg, "circular dependency between ensembles: %s -> ... -> %s -> %s", m.id, last.id, m.id)
	}
	for _, step := range steps {
		c := r.resolveLocked(step, m.id)
		if c.invalid != nil {
			return infer.Errorf(infer.InvalidArg, "ensemble '%s' depends on '%s' which is not valid. Model '%s' failed with error: %s",
				m.id, c.id, c.id, infer.AsError(c.invalid).Message)
		}
		ready := c.readyLocked()
		if len(ready) == 0 {
			more := ""
			if c.failure != "" {
				more = " Model '" + c.id.String() + "' loading failed with error: " + c.failure
			}
			return infer.Errorf(infer.InvalidArg, "ensemble '%s' depends on '%s' which has no loaded version.%s", m.id, c.id, more)
		}
		for _, version := range composing[step] {
			if version != infer.LatestVersion && !slices.Contains(ready, version) {
				return infer.Errorf(infer.InvalidArg, "ensemble '%s' depends on '%s' whose required version %d is not loaded.", m.id, c.id, version)
			}
		}
	}
	return nil
}

// circleLocked finds the last model on a way of dependencies from m to m, nil if
// there is no way.
func (r *Registry) circleLocked(m *model) *model {
	passed := make(map[*model]bool)
	var search func(at *model) *model
	search = func(at *model) *model {
		for _, next := range r.composingLocked(at) {
			if next == m {
				return at
			}
			if passed[next] {
				continue
			}
			passed[next] = true
			if last := search(next); last != nil {
				return last
			}
		}
		return nil
	}
	return search(m)
}

// readyLocked lists the versions that are ready, ascending.
func (m *model) readyLocked() []int64 {
	var ready []int64
	for number, v := range m.versions {
		if v.state == Ready {
			ready = append(ready, number)
		}
	}
	slices.Sort(ready)
	return ready
}
