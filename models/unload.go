package models

import (
	"context"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
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
func (r *Registry) end(m *model, number int64, l *loaded) {
	ctx, cancel := r.unloading(l.model)
	defer cancel()
	if err := l.close(ctx); err != nil {
		r.config.Log.Error().Msgf("unloading '%s' version %d: %v", m.id, number, err)
		return
	}
	r.config.Log.Info().Msgf("successfully unloaded '%s' version %d", m.id, number)
}

// Submit implements infer.Submitter: models may call others until the end.
func (h host) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	l, err := h.reached(req)
	if err != nil {
		return err
	}
	defer l.holds.release()
	return l.run(ctx, req, send, l.scheduler.Submit)
}

// Decoupled implements backend.Host.
func (h host) Decoupled(name string, number int64) (decoupled, asks bool, err error) {
	l, err := h.lookup(name, number)
	if err != nil {
		return false, false, err
	}
	asker, can := l.model.(backend.Asker)
	return l.info.Decoupled(), can && asker.AsksReady(), nil
}
