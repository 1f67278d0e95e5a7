package catalog

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// Index lists the models that have a directory, with the reason if they are rejected. With ready it
// lists only the ready ones.
func (k *Catalog) Index(ids []repository.Identity, rejected map[repository.Identity]string, ready bool) []*kserve.RepositoryIndexResponse_ModelIndex {
	k.mu.Lock()
	defer k.mu.Unlock()
	var index []*kserve.RepositoryIndexResponse_ModelIndex // bound: the models that have a directory, and their versions
	for _, id := range ids {
		m := k.models[id]
		reason, no := rejected[id]
		switch {
		case no && m != nil && len(m.readyLocked()) > 0: // no poll since there are two
		case no:
			if !ready {
				index = append(index, &kserve.RepositoryIndexResponse_ModelIndex{Name: id.Name, State: string(Unavailable), Reason: reason})
			}
			continue
		case m != nil && len(m.versions) > 0:
		case m != nil && m.attempted && m.invalid == nil: // it has no version
			continue
		default:
			if !ready {
				index = append(index, &kserve.RepositoryIndexResponse_ModelIndex{Name: id.Name})
			}
			continue
		}
		for _, number := range slices.Sorted(maps.Keys(m.versions)) {
			v := m.versions[number]
			if ready && v.state != Ready {
				continue
			}
			reason := v.reason.told
			if k.showFailures && v.state == Ready {
				reason = m.failure
			}
			index = append(index, &kserve.RepositoryIndexResponse_ModelIndex{
				Name: id.Name, Version: strconv.FormatInt(number, 10), State: string(v.state), Reason: reason,
			})
		}
	}
	return index
}

// Statistics returns the statistics of ready versions, of all models if name is "".
func (k *Catalog) Statistics(name string, number int64) ([]*kserve.ModelStatistics, error) {
	serving := k.serving.Load()
	var list []*kserve.ModelStatistics // bound: the versions that serve
	if name != "" {
		m, err := serving.find(name)
		if err != nil || m == nil || len(m.ready) == 0 {
			return nil, infer.Errorf(infer.InvalidArg, "requested model '%s' is not available", name)
		}
		if number != infer.LatestVersion {
			v := m.versions[number]
			if v == nil || v.state != Ready {
				return nil, infer.Errorf(infer.InvalidArg, "requested model version is not available for model '%s'", name)
			}
			return []*kserve.ModelStatistics{v.loaded.Statistics()}, nil
		}
		return m.appendStatistics(list), nil
	}
	for _, id := range repository.KeysOf(serving.models).Sorted() {
		list = serving.models[id].appendStatistics(list)
	}
	return list, nil
}

// bound: the versions that serve
func (m *servingModel) appendStatistics(list []*kserve.ModelStatistics) []*kserve.ModelStatistics {
	for _, number := range m.ready {
		list = append(list, m.versions[number].loaded.Statistics())
	}
	return list
}

// Status is one version of a model as the startup table shows it. A model without versions has
// Version 0.
type Status struct {
	Name    string
	Version int64
	State   State
	Reason  string
	Backend string // of a version that serves
	// PythonBased reports whether the backend is Python-based.
	PythonBased bool
	// Plugin is the program of a plugin backend, "" for other backends.
	Plugin string
}

// Attempted lists the models that have been loaded or tried, by name and version.
func (k *Catalog) Attempted() []Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Status // bound: the models and their versions
	for _, id := range repository.KeysOf(k.models).Sorted() {
		m, name := k.models[id], id.String()
		if !m.attempted {
			continue
		}
		if len(m.versions) == 0 {
			list = append(list, Status{Name: name})
		}
		for _, number := range slices.Sorted(maps.Keys(m.versions)) {
			v := m.versions[number]
			s := Status{Name: name, Version: number, State: v.state, Reason: v.reason.detail}
			if v.state == Ready {
				s.Backend = v.loaded.Info().Config.GetBackend()
				s.PythonBased = v.loaded.Info().PythonBased()
				s.Plugin = v.loaded.Info().Plugin
			}
			list = append(list, s)
		}
	}
	return list
}

// Shown is one version of a model as operators see it. A model without versions has Number 0.
type Shown struct {
	Model   repository.Identity
	Number  int64
	State   State
	Reason  string
	Version *version.Version // of READY and UNLOADING, nil otherwise
}

// Overview calls show for each version of the attempted models, by model and version. It reads the
// snapshot for requests and takes no lock.
func (k *Catalog) Overview(show func(Shown)) {
	serving := k.serving.Load()
	for _, id := range repository.KeysOf(serving.models).Sorted() {
		m := serving.models[id]
		if len(m.versions) == 0 {
			show(Shown{Model: id, State: Unavailable})
		}
		for _, number := range slices.Sorted(maps.Keys(m.versions)) {
			v := m.versions[number]
			show(Shown{id, number, v.state, v.reason.detail, v.loaded})
		}
	}
}
