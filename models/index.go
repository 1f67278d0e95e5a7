package models

import "github.com/nereid-serving/nereid/kserve"

// Index lists the repository as the protocol shows it: the models that have a
// directory there, whatever was loaded.
func (r *Registry) Index(ready bool) ([]*kserve.RepositoryIndexResponse_ModelIndex, error) {
	if r.config.Unusable {
		return nil, errNotReady
	}
	ids, rejected, err := r.config.Repository.Scan()
	if err != nil {
		r.config.Log.Error().Msgf("list the model repository: %v", err)
	}
	return r.catalog.index(ids, rejected, ready), nil
}

// Statistics returns the statistics of what is ready.
func (r *Registry) Statistics(name string, number int64) ([]*kserve.ModelStatistics, error) {
	if r.config.Unusable {
		return nil, errNotReady
	}
	return r.catalog.statistics(name, number)
}

// Attempted lists the models that loading was tried for, by name and version.
func (r *Registry) Attempted() []Status { return r.catalog.attempted() }
