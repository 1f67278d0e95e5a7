package models

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
)

// retired is a version that has been taken out of service.
type retired struct {
	number int64
	*loaded
}

// retireLocked takes the versions that serve out of service, but for those to
// keep, which are replaced by the caller.
func (r *Registry) retireLocked(m *model, keep []int64) []retired {
	var ended []retired
	for number, v := range m.versions {
		if v.state != Ready || slices.Contains(keep, number) {
			continue
		}
		ended = append(ended, retired{number, v.loaded})
		v.state, v.reason = Unloading, ""
	}
	return ended
}

// endLaterLocked ends versions in the background; each is done when its requests
// are. It is said with the lock with which they were taken out of service, so that
// Shutdown does not come between.
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
