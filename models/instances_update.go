package models

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// instanceUpdate is an exchange of instances of a version that serves: what is
// new is up and warm, and waits, until commit or drop. A nil one does nothing.
type instanceUpdate struct {
	registry       *Registry
	before, after  *loaded
	updater        backend.Updater
	added, surplus []backend.Instance
}

// updateInstances prepares a version that serves for a description that differs
// from its own in the instances alone, and perhaps in the choice of versions.
// can is false where the version has to be loaded anew.
func (r *Registry) updateInstances(ctx context.Context, l *loaded, d *repository.Description) (u *instanceUpdate, can bool, err error) {
	if err := d.Check(); err != nil {
		return nil, true, err
	}
	c := config.Clone(l.info.Config)
	described := config.Clone(d.Config)
	c.InstanceGroup, c.VersionPolicy = described.InstanceGroup, described.VersionPolicy
	return r.exchange(ctx, l, c)
}

// exchange prepares the instances of config, which differs from that of the
// version in them alone.
func (r *Registry) exchange(ctx context.Context, l *loaded, c *kserve.ModelConfig) (u *instanceUpdate, can bool, err error) {
	updater, ok := l.model.(backend.Updater)
	if !ok || onlyPassive(c.GetInstanceGroup()) {
		return nil, false, nil // requests that wait would wait for ever
	}
	json, err := config.JSON(c)
	if err != nil {
		return nil, true, err
	}
	share, err := r.config.Limiter.Reserve(c.GetInstanceGroup())
	if err != nil {
		return nil, true, err
	}
	u = &instanceUpdate{registry: r, before: l, updater: updater}
	u.after = l.with(c, json, share)
	if u.added, u.surplus, err = updater.Grow(ctx, c, json); err == nil {
		err = l.warmed(ctx)
	}
	if err != nil {
		u.drop()
		return nil, true, err
	}
	return u, true, nil
}

// with returns a copy that shows another config.
func (l *loaded) with(config *kserve.ModelConfig, json []byte, share *ratelimit.Share) *loaded {
	info, after := *l.info, *l
	info.Config, info.JSON = config, json
	after.info, after.share, after.passive = &info, share, false
	return &after
}

// drop ends what is new.
func (u *instanceUpdate) drop() {
	if u == nil {
		return
	}
	ctx, cancel := u.registry.unloading(u.before.model)
	defer cancel()
	waiting := u.before.barrier.Refuse()
	var ends sync.WaitGroup
	for _, in := range u.added {
		ends.Go(boundary.Guard(u.registry.config.Log, boundary.Models, func() { u.end(ctx, in) }, nil))
	}
	ends.Wait()
	for _, in := range waiting { // among them what has not even come up with the others
		u.forget(in)
		u.before.barrier.Forget(in)
	}
	u.after.share.Release()
}

// commit lets what is new take work, and ends what is not wanted any more as soon
// as it has none. The copy of the version has been published. When commit returns,
// those that had no work have ended; left are the others.
func (u *instanceUpdate) commit() (left []backend.Instance) {
	if u == nil {
		return nil
	}
	l := u.before
	l.barrier.Admit()
	if len(u.surplus) == 0 {
		l.share.Release()
		return nil
	}
	var more atomic.Int64
	more.Store(int64(len(u.surplus)))
	var idle sync.WaitGroup
	for _, in := range u.surplus {
		u.updater.Leave(in)
		known := l.barrier.Retire(in)
		drained := make(chan struct{}) // closed by the scheduler
		if known == nil {              // a passive one
			close(drained)
		} else {
			l.scheduler.Retire(known, func() { close(drained) })
		}
		ended := func() {}
		select {
		case <-drained:
			idle.Add(1)
			ended = idle.Done
		default:
			left = append(left, in)
		}
		u.registry.ending.Go(u.registry.config.Log, boundary.Models, func() {
			defer ended()
			defer func() {
				if more.Add(-1) == 0 {
					l.share.Release()
				}
			}()
			u.leave(in, known, drained)
		}, nil)
	}
	idle.Wait()
	return left
}

// leave ends an instance when it has no work, or the time for that is over.
func (u *instanceUpdate) leave(in, known backend.Instance, drained <-chan struct{}) {
	l := u.before
	ctx, cancel := u.registry.unloading(l.model)
	defer cancel()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	u.end(ctx, in)
	<-drained // an instance that is gone has no work
	u.forget(known)
	l.barrier.Forget(in)
}

func (u *instanceUpdate) end(ctx context.Context, in backend.Instance) {
	log := u.registry.config.Log.With().Str("model", u.before.info.Name).Int64("version", u.before.info.Version).Str("instance", in.Name()).Logger()
	if err := u.updater.End(ctx, in); err != nil {
		log.Error().Msgf("ending the instance: %v", err)
		return
	}
	log.Info().Msg("the instance has ended")
}

// forget has what stands between the instances and the scheduler drop what it
// knows of one, given as the scheduler knows it.
func (u *instanceUpdate) forget(in backend.Instance) {
	for in != nil {
		for _, f := range u.before.between {
			f.Forget(in)
		}
		w, ok := in.(backend.Wrapper)
		if !ok {
			return
		}
		in = w.Wrapped()
	}
}
