package models

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
	"github.com/nereid-serving/nereid/panics"
)

// host is the registry as the instances of one version see it.
type host struct {
	*Registry
	load *loadInProgress
}

var _ backend.Host = host{}

// loadInProgress is a version that is being loaded. Its code may ask for other loads, and the load
// of its own model waits for its code.
type loadInProgress struct {
	model string
	op    *operation // the operation that loads it
	slot  func()     // frees its slot among concurrent loads

	mu   sync.Mutex
	over bool
}

// operation is one change of models. It locks the models that it changes.
type operation = catalog.Operation

// begin announces an operation about the model name. up waits for it unless up is nil.
func (r *Registry) begin(name string, up *loadInProgress) *operation {
	if up == nil {
		return r.locks.Begin(name, "", nil)
	}
	return r.locks.Begin(name, up.model, up.op)
}

// end records that the load is over.
func (l *loadInProgress) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
}

func (l *loadInProgress) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Load implements backend.Host.
func (h host) Load(ctx context.Context, model, config string, files map[string][]byte) error {
	up, err := h.asks()
	if err != nil {
		return err
	}
	return h.answer(h.explicitLoad(ctx, up, model, config, files), model, "load")
}

// Unload implements backend.Host.
func (h host) Unload(ctx context.Context, model string, dependents bool) error {
	up, err := h.asks()
	if err != nil {
		return err
	}
	return h.answer(h.explicitUnload(ctx, up, model, dependents), model, "unload")
}

// asks begins a change that model code asks for. It returns the load that waits for the change, or
// nil.
func (h host) asks() (*loadInProgress, error) {
	if !h.started.Load() {
		return nil, errNotReady
	}
	if h.load.isOver() {
		return nil, nil //nolint:nilnil // as the doc says
	}
	// A waiting load must not block other loads, because it may be waiting for
	// them.
	h.load.slot()
	return h.load, nil
}

// answer is the error that model code receives for its change.
func (h host) answer(err error, model, what string) error {
	var circle *catalog.CircleError
	if !errors.As(err, &circle) {
		return err
	}
	return infer.Errorf(infer.Unavailable, "failed to %s '%s', the load of '%s' waits for this call and would wait for itself: %s",
		what, model, h.load.model, strings.Join(circle.Way, " -> ")) // bound: the loads under way
}

// ModelReady implements backend.Host. A model that is known but not loaded is not ready; models ask
// before they load it.
func (h host) ModelReady(ctx context.Context, model string, number int64) (bool, error) {
	if !h.started.Load() {
		return false, errNotReady
	}
	ready, err := h.Registry.ModelReady(ctx, model, number)
	var own *infer.Error
	if errors.As(err, &own) && !h.loader.Exiting() && h.catalog.Knows(model, number) {
		return false, nil
	}
	return ready, err
}

// Target implements backend.Host. Models may call others until the server has shut down.
func (h host) Target(name string, number int64) (backend.Target, error) {
	return h.reach(name, number)
}

// view is the registry as versions and the catalog see it.
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

// End implements catalog.Owner. It is called with the catalog's lock held. Shutdown takes that lock
// before it waits, so it cannot come between.
func (v view) End(id repository.Identity, number int64, ended *version.Version) {
	v.ending.Go(v.config.Log, panics.Models, func() {
		defer v.catalog.Ended(id, number, ended) // after a panic too
		v.end(id, number, ended)
	}, nil)
}

// Exiting implements catalog.Owner.
func (v view) Exiting() bool { return v.loader.Exiting() }

// end closes a version that requests can no longer reach.
func (r *Registry) end(id repository.Identity, number int64, v *version.Version) {
	if err := v.Close(); err != nil {
		r.config.Log.Error().Msgf("unloading '%s' version %d: %v", id, number, err)
		return
	}
	r.config.Log.Info().Msgf("successfully unloaded '%s' version %d", id, number)
}
