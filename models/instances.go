package models

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// newGate makes the gate in front of a version's scheduler.
func (r *Registry) newGate(l *loaded, d *repository.Description) *gate {
	var warm func(ctx context.Context, in backend.Instance, first bool) error
	if samples := l.info.Config.GetModelWarmup(); len(samples) > 0 {
		w := &warmup{
			samples: samples, spec: l.spec, model: l.info.Name, version: l.info.Version, open: d.Open, observer: l.statistics,
			iterative: l.info.Config.GetSequenceBatching().GetIterativeSequence(), log: r.config.Log,
		}
		warm = w.run
	}
	return newGate(l.scheduler, warm, r.config.Log.With().Str("model", l.info.Name).Int64("version", l.info.Version).Logger())
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
		l.gate.cancel() // so that whoever still warms up ends
		return err
	}
	l.passive = onlyPassive(config.GetInstanceGroup())
	l.gate.admit()
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
	return l.gate.wait(ctx)
}

// abandon forgets a version, if there is one, whose instances have ended and that
// no request could ever reach.
func (l *loaded) abandon() {
	if l == nil {
		return
	}
	l.gate.close()
	l.share.Release()
	l.cache.close()
	l.statistics.metrics.Close()
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
