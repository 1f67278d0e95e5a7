package models

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/warmup"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// newBarrier makes the barrier in front of a version's scheduler.
func (r *Registry) newBarrier(l *loaded, d *repository.Description) *warmup.Barrier {
	var warm func(ctx context.Context, in backend.Instance, first bool) error
	if samples := l.info.Config.GetModelWarmup(); len(samples) > 0 {
		w := &warmup.Samples{
			Configured: samples, Signature: l.spec, Model: l.info.Name, Version: l.info.Version, Open: d.Open, Observer: l.statistics,
			Iterative: l.info.Config.GetSequenceBatching().GetIterativeSequence(), Log: r.config.Log,
		}
		warm = w.Run
	}
	return warmup.NewBarrier(l.scheduler, warm, r.config.Log.With().Str("model", l.info.Name).Int64("version", l.info.Version).Logger())
}

// forgetful is an Events that keeps something of each instance.
type forgetful interface {
	Forget(in backend.Instance)
}

// limit has the version's instances wait for their turn, if there is a rate
// limiter.
func (r *Registry) limit(l *loaded, next backend.Events) backend.Events {
	if r.config.Limiter == nil {
		return next
	}
	events := r.config.Limiter.Events(next)
	l.between = append(l.between, events)
	return events
}

// start brings up the version's instances and has them warmed up.
func (l *loaded) start(ctx context.Context, events backend.Events, limiter *ratelimit.Limiter) (err error) {
	config := l.info.Config
	if l.share, err = limiter.Reserve(config.GetInstanceGroup()); err != nil {
		return err
	}
	if err = l.model.Start(ctx, config, l.info.JSON, events); err == nil {
		err = l.warmed(ctx)
	}
	if err != nil {
		l.barrier.Cancel() // so that a warm-up still running ends
		return err
	}
	l.passive = onlyPassive(config.GetInstanceGroup())
	l.barrier.Admit()
	return nil
}

// warmed returns when the instances that have come are warm, or why one is not; that
// they are not warm in time is a reason.
func (l *loaded) warmed(ctx context.Context) error {
	if p, ok := l.model.(backend.Patient); ok && p.InitializeTimeout() > 0 {
		limit := p.InitializeTimeout()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, infer.Errorf(infer.Internal, "the warm-up of model '%s' did not end within %s", l.info.Name, limit))
		defer cancel()
	}
	return l.barrier.Wait(ctx)
}

// abandon forgets a version, if there is one, whose instances have ended and that
// no request could ever reach.
func (l *loaded) abandon() {
	if l == nil {
		return
	}
	l.barrier.Close()
	l.share.Release()
	l.cache.Close()
	l.statistics.Metrics.Close()
}

// onlyPassive reports whether there are instances and none takes requests.
func onlyPassive(groups []*kserve.ModelInstanceGroup) bool {
	return len(groups) > 0 && !slices.ContainsFunc(groups, func(g *kserve.ModelInstanceGroup) bool { return !g.GetPassive() })
}

// errPassive is what requests to a version are refused with that has passive
// instances alone.
func (l *loaded) errPassive() error {
	return infer.Errorf(infer.Unavailable, "model '%s' has only passive instances, which take no requests", l.info.Name)
}
