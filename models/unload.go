package models

import (
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// End implements owner. It is called with the catalog's lock held, so that Shutdown, which
// takes that before it waits, does not come between.
func (v view) End(id repository.Identity, number int64, ended *version.Version) {
	v.ending.Go(v.config.Log, boundary.Models, func() {
		defer v.catalog.ended(id, number, ended) // whatever became of it
		v.end(id, number, ended)
	}, nil)
}

// Exiting implements owner.
func (v view) Exiting() bool { return v.loader.Exiting() }

// end finishes a version that requests cannot reach any more.
func (r *Registry) end(id repository.Identity, number int64, v *version.Version) {
	if err := v.Close(); err != nil {
		r.config.Log.Error().Msgf("unloading '%s' version %d: %v", id, number, err)
		return
	}
	r.config.Log.Info().Msgf("successfully unloaded '%s' version %d", id, number)
}
