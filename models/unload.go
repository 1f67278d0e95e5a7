package models

import (
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/models/version"
)

// endLaterLocked ends versions in the background; each is done when its requests
// are. Callers hold r.mu since retireLocked, so that Shutdown does not come between.
func (r *Registry) endLaterLocked(m *model, versions []retired) {
	for _, old := range versions {
		r.ending.Go(r.config.Log, boundary.Models, func() {
			defer func() { // whatever became of it
				r.mu.Lock()
				defer r.mu.Unlock()
				if v := m.versions[old.number]; v != nil && v.loaded == old.loaded {
					v.state, v.reason, v.loaded = Unavailable, reasonUnloaded, nil
					r.publishLocked()
				}
			}()
			r.end(m, old.number, old.loaded)
		}, nil)
	}
}

// end finishes a version that requests cannot reach any more.
func (r *Registry) end(m *model, number int64, v *version.Version) {
	if err := v.Close(); err != nil {
		r.config.Log.Error().Msgf("unloading '%s' version %d: %v", m.id, number, err)
		return
	}
	r.config.Log.Info().Msgf("successfully unloaded '%s' version %d", m.id, number)
}
