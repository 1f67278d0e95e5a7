package models

import (
	"context"

	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// view is what versions and the catalog see of the registry.
type view struct{ *Registry }

var (
	_ version.Registry = view{}
	_ catalog.Owner    = view{}
)

// Latest implements version.Registry.
func (v view) Latest(step, ensemble repository.Identity) (*version.Version, error) {
	return v.catalog.Latest(step, ensemble)
}

// Hold implements version.Registry.
func (v view) Hold(model repository.Identity, number int64) (version.Held, error) {
	return held(func() (*version.Version, error) { return v.catalog.FindModel(model, number) })
}

// Lifetime implements version.Registry.
func (v view) Lifetime() context.Context { return v.lifetime }

// Ending implements version.Registry.
func (v view) Ending() *panics.WaitGroup { return &v.ending }

// End implements catalog.Owner. It is called with the catalog's lock held, so that Shutdown, which
// takes that before it waits, does not come between.
func (v view) End(id repository.Identity, number int64, ended *version.Version) {
	v.ending.Go(v.config.Log, panics.Models, func() {
		defer v.catalog.Ended(id, number, ended) // after a panic too
		v.end(id, number, ended)
	}, nil)
}

// Exiting implements catalog.Owner.
func (v view) Exiting() bool { return v.loader.Exiting() }

// end finishes a version that requests cannot reach any more.
func (r *Registry) end(id repository.Identity, number int64, v *version.Version) {
	if err := v.Close(); err != nil {
		r.config.Log.Error().Msgf("unloading '%s' version %d: %v", id, number, err)
		return
	}
	r.config.Log.Info().Msgf("successfully unloaded '%s' version %d", id, number)
}
