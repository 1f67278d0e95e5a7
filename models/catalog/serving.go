package catalog

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// servingModel is the immutable snapshot of a model for requests.
type servingModel struct {
	versions map[int64]*entry // copies
	ready    []int64          // ascending
}

// servingNow is the immutable snapshot of all models for requests.
type servingNow struct {
	models map[repository.Identity]*servingModel
	// names maps each name to the wanted models that have it; nil without namespaces.
	names map[string][]repository.Identity
}

// find returns the model with a name, or nil. With namespaces the error says why the name does not
// resolve.
func (s *servingNow) find(name string) (*servingModel, error) {
	if s.names == nil {
		return s.models[repository.Identity{Name: name}], nil
	}
	switch ids := s.names[name]; len(ids) {
	case 0:
		for id := range s.models {
			if id.Name == name {
				return nil, infer.Errorf(infer.NotFound, "Identifier of model '%s' is not found in global map", name)
			}
		}
		return nil, infer.Errorf(infer.InvalidArg, "Request for unknown model: '%s' is not found", name)
	case 1:
		return s.models[ids[0]], nil
	default:
		return nil, infer.Errorf(infer.InvalidArg,
			"There are %d identifiers of model '%s' in global map, model namespace must be provided to resolve ambiguity.", len(ids), name)
	}
}

// version finds a version of a model, which may be nil.
func (m *servingModel) version(name string, number int64) (*version.Version, error) {
	if m == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' is not found", name)
	}
	if number == infer.LatestVersion {
		if len(m.ready) == 0 {
			return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", name)
		}
		number = m.ready[len(m.ready)-1]
	}
	v := m.versions[number]
	if v == nil {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' version %d is not found", name, number)
	}
	if v.state != Ready {
		return nil, infer.Errorf(infer.Unavailable, "Request for unknown model: '%s' version %d is not at ready state", name, number)
	}
	return v.loaded, nil
}

// Find returns the version that serves a request.
func (k *Catalog) Find(name string, number int64) (*version.Version, error) {
	m, err := k.serving.Load().find(name)
	if err != nil {
		return nil, err
	}
	return m.version(name, number)
}

// FindModel returns the version of a model that serves a request.
func (k *Catalog) FindModel(id repository.Identity, number int64) (*version.Version, error) {
	return k.serving.Load().models[id].version(id.Name, number)
}

// Named returns the first wanted model with a name. known is false if namespaces are in use and no
// model has the name.
func (k *Catalog) Named(name string) (id repository.Identity, known bool) {
	now := k.serving.Load()
	if now.names == nil {
		return repository.Identity{Name: name}, true
	}
	if ids := now.names[name]; len(ids) > 0 {
		return ids[0], true
	}
	return repository.Identity{}, false
}

// ReadyVersions lists the ready versions of a model, ascending.
func (k *Catalog) ReadyVersions(name string) []int64 {
	if m, err := k.serving.Load().find(name); err == nil && m != nil {
		return m.ready
	}
	return nil
}

// InFlight counts the requests in flight of each version that has any.
func (k *Catalog) InFlight() map[*version.Info]int {
	counts := make(map[*version.Info]int) // bound: the loaded versions
	for _, m := range k.serving.Load().models {
		for _, v := range m.versions {
			if v.loaded == nil {
				continue
			}
			if n := v.loaded.InFlight(); n > 0 {
				counts[v.loaded.Info()] = n
			}
		}
	}
	return counts
}
