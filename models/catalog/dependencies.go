package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// resolveLocked finds the wanted model that a step of an ensemble refers to. Without a namespace
// that is the ensemble's neighbour, or the only model of that name.
func (k *Catalog) resolveLocked(step repository.Identity, ensemble repository.Identity) *model {
	wanted := func(id repository.Identity) *model {
		if m := k.models[id]; m != nil && m.wanted != nil {
			return m
		}
		return nil
	}
	if step.Namespace != "" || !k.roots.Namespacing() {
		return wanted(step)
	}
	if m := wanted(repository.Identity{Namespace: ensemble.Namespace, Name: step.Name}); m != nil {
		return m
	}
	var only *model
	for id, m := range k.models {
		if id.Name == step.Name && m.wanted != nil {
			if only != nil {
				return nil
			}
			only = m
		}
	}
	return only
}

// composingLocked lists the wanted models that a wanted ensemble is composed of.
func (k *Catalog) composingLocked(m *model) []*model {
	if m.wanted == nil || !m.wanted.IsEnsemble() {
		return nil
	}
	var list []*model // bound: the models
	for step := range m.wanted.Composing() {
		if c := k.resolveLocked(step, m.id); c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// callsOthersLocked reports whether a serving ensemble calls other models than parts, the current
// meaning of its steps.
//
// bound: the models
func (m *model) callsOthersLocked(parts []*model) bool {
	now := make(repository.Set, len(parts))
	for _, part := range parts {
		now[part.id] = true
	}
	for _, v := range m.versions {
		if v.state == Ready && !maps.Equal(v.loaded.Composing(), now) {
			return true
		}
	}
	return false
}

// Candidates lists the models that a step of an ensemble may refer to.
func (k *Catalog) Candidates(step repository.Identity) []repository.Identity {
	if step.Namespace != "" || !k.roots.Namespacing() {
		return []repository.Identity{step}
	}
	var list []repository.Identity // bound: the repositories
	for _, namespace := range k.roots.Namespaces() {
		list = append(list, repository.Identity{Namespace: namespace, Name: step.Name})
	}
	return list
}

// Dependents returns the ensembles that depend on any of the models, directly or indirectly.
func (k *Catalog) Dependents(of repository.Set) repository.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dependentsLocked(of)
}

// dependentsLocked returns the ensembles that depend on any of the models, directly or indirectly,
// whether they serve or wait for a missing model.
//
// bound: the configs of the ensembles, and the models of an operation
func (k *Catalog) dependentsLocked(of repository.Set) repository.Set {
	users := make(map[repository.Identity][]repository.Identity)
	for id, m := range k.models {
		if m.wanted == nil || !m.wanted.IsEnsemble() {
			continue
		}
		for step := range m.wanted.Composing() {
			// A step that is missing or ambiguous now may soon resolve differently.
			for _, at := range k.Candidates(step) {
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

// checkDependenciesLocked returns why an ensemble cannot be served: a model is missing, depends on
// the ensemble in turn, or does not serve.
//
// bound: the config
func (k *Catalog) checkDependenciesLocked(m *model) error {
	composing := m.wanted.Composing()
	steps := slices.SortedFunc(maps.Keys(composing), repository.Identity.Compare)
	var missing []string
	for _, step := range steps {
		if k.resolveLocked(step, m.id) == nil {
			missing = append(missing, step.Name)
		}
	}
	if len(missing) > 0 {
		return infer.Errorf(infer.InvalidArg, "ensemble %s contains models that are not available or ambiguous: %s", m.id, strings.Join(missing, ", "))
	}
	if last := k.circleLocked(m); last != nil {
		return infer.Errorf(infer.InvalidArg, "circular dependency between ensembles: %s -> ... -> %s -> %s", m.id, last.id, m.id)
	}
	for _, step := range steps {
		c := k.resolveLocked(step, m.id)
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

// circleLocked finds the last model of a cycle of dependencies through m. It returns nil if there
// is no such cycle.
func (k *Catalog) circleLocked(m *model) *model {
	last, _ := LastOfCycle(m, k.composingLocked)
	return last
}

// LastOfCycle follows next from start and returns the element whose successor is start again.
func LastOfCycle[T comparable](start T, next func(T) []T) (last T, found bool) {
	passed := make(map[T]bool)
	var search func(at T) bool
	search = func(at T) bool {
		passed[at] = true
		for _, n := range next(at) {
			if n == start {
				last = at
				return true
			}
			if !passed[n] && search(n) {
				return true
			}
		}
		return false
	}
	found = search(start)
	return last, found
}

// Latest returns the highest ready version of the model that a step of an ensemble refers to. It
// also works during startup.
func (k *Catalog) Latest(step, ensemble repository.Identity) (*version.Version, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.resolveLocked(step, ensemble); m != nil {
		if ready := m.readyLocked(); len(ready) > 0 {
			return m.versions[ready[len(ready)-1]].loaded, nil
		}
	}
	return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", step)
}

// UnloadedWith returns the models to unload together with those of a name.
//
// bound: the models
func (k *Catalog) UnloadedWith(name string, dependents bool) repository.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	gone := make(repository.Set)
	for id := range k.models {
		if id.Name == name {
			gone[id] = true
		}
	}
	if !dependents {
		return gone
	}
	todo := gone.Sorted()
	for len(todo) > 0 {
		m := k.models[todo[0]]
		todo = todo[1:]
		for _, part := range k.composingLocked(m) {
			if gone[part.id] || part.named || k.usedLocked(part, gone) {
				continue
			}
			gone[part.id] = true
			todo = append(todo, part.id)
		}
	}
	return gone
}

// usedLocked reports whether an ensemble outside gone is composed of the model.
func (k *Catalog) usedLocked(part *model, gone repository.Set) bool {
	for id, m := range k.models {
		if !gone[id] && m.wanted != nil && slices.Contains(k.composingLocked(m), part) {
			return true
		}
	}
	return false
}

// Claimed returns the models that an operation must hold to load from these sources: the models
// themselves and the parts of ensembles among them. The parts must not change before the catalog
// knows that these ensembles depend on them.
//
// bound: the config
func (k *Catalog) Claimed(sources map[repository.Identity]*Source) repository.Set {
	set := repository.KeysOf(sources)
	for _, s := range sources {
		if s == nil {
			continue
		}
		for step := range s.Composing() {
			for _, part := range k.Candidates(step) {
				set[part] = true
			}
		}
	}
	return set
}

// Components groups models into independent sets: no ensemble has parts in two of them, and no two
// ensembles in different groups share a part.
//
// bound: the models, and the configs of the ensembles
func (k *Catalog) Components(sources map[repository.Identity]*Source) [][]repository.Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	leaders := make(map[repository.Identity]repository.Identity)
	var leader func(repository.Identity) repository.Identity
	leader = func(id repository.Identity) repository.Identity {
		up, known := leaders[id]
		if !known || up == id {
			return id
		}
		leaders[id] = leader(up)
		return leaders[id]
	}
	join := func(id repository.Identity, s *Source) {
		if s == nil || !s.IsEnsemble() {
			return
		}
		for step := range s.Composing() {
			for _, part := range k.Candidates(step) {
				leaders[leader(part)] = leader(id)
			}
		}
	}
	for id, m := range k.models {
		join(id, m.wanted)
	}
	for id, s := range sources {
		join(id, s)
	}
	groups := make(map[repository.Identity][]repository.Identity)
	for _, id := range slices.SortedFunc(maps.Keys(sources), repository.Identity.Compare) {
		groups[leader(id)] = append(groups[leader(id)], id)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []repository.Identity) int { return a[0].Compare(b[0]) })
}

// StepsOf returns the steps of a serving ensemble as it was loaded, nil for other models.
func (k *Catalog) StepsOf(id repository.Identity) repository.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.models[id]; m != nil && m.served != nil && m.served.IsEnsemble() {
		return repository.KeysOf(m.served.Composing())
	}
	return nil
}
