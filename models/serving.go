package models

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// servingModel is a model's state as requests see it. It does not change.
type servingModel struct {
	versions map[int64]*entry // copies
	ready    []int64          // ascending
}

// servingNow are all models as requests see them. It does not change.
type servingNow struct {
	models map[repository.Identity]*servingModel
	// names are the models that are to be served by their names, where there are
	// namespaces.
	names map[string][]repository.Identity
}

// find returns the model that a name means, nil if there is none. The error says
// why there is none where there are namespaces.
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

// version finds a version of a model that may be nil.
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

// held has lookup find a version that can be held, and holds it.
func held(lookup func() (*version.Version, error)) (version.Held, error) {
	for {
		v, err := lookup()
		if err != nil {
			return version.Held{}, err
		}
		if h, can := v.Hold(); can {
			return h, nil
		}
		// It was replaced just now: its successor is there already, or it is gone.
	}
}
