package version

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/warmup"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/ratelimit"
)

// newBarrier makes the barrier in front of a version's scheduler.
func (l *Loader) newBarrier(v *Version, d *repository.Description) *warmup.Barrier {
	var warm func(ctx context.Context, in backend.Instance, first bool) error
	if samples := v.info.Config.GetModelWarmup(); len(samples) > 0 {
		w := &warmup.Samples{
			Configured: samples, Signature: v.spec, Model: v.info.Name, Version: v.info.Version, Open: d.Open, Observer: v.statistics, Memory: l.settings.Memory,
			Iterative: v.info.Config.GetSequenceBatching().GetIterativeSequence(), Log: l.settings.Log,
		}
		warm = w.Run
	}
	return warmup.NewBarrier(v.scheduler, warm, l.settings.Log.With().Str("model", v.info.Name).Int64("version", v.info.Version).Logger())
}

// start brings up the version's instances and warms them up.
func (v *Version) start(ctx context.Context, events backend.Events, limiter *ratelimit.Limiter) (err error) {
	config := v.info.Config
	if v.share, err = limiter.Reserve(config.GetInstanceGroup()); err != nil {
		return err
	}
	if err = v.model.Start(ctx, config, v.info.JSON, events); err == nil {
		err = v.warmed(ctx)
	}
	if err != nil {
		v.barrier.Cancel() // so that a warm-up still running ends
		return err
	}
	v.passive = onlyPassive(config.GetInstanceGroup())
	v.barrier.Admit()
	return nil
}

// warmed returns when all present instances are warm, or with the error of the first failure.
// Not being warm in time is an error.
func (v *Version) warmed(ctx context.Context) error {
	limit := v.can.InitializeTimeout
	ctx, cancel := panics.WithLimit(ctx, limit, infer.Errorf(infer.Internal, "the warm-up of model '%s' did not end within %s", v.info.Name, limit))
	defer cancel()
	return v.barrier.Wait(ctx)
}

// abandon discards a version, if any, whose instances have ended and that no request could reach.
func (v *Version) abandon() {
	if v == nil {
		return
	}
	v.barrier.Close()
	v.share.Release()
	v.cache.Close()
	v.statistics.Metrics.Close()
}

// onlyPassive reports whether there are instances, but none that takes requests.
func onlyPassive(groups []*kserve.ModelInstanceGroup) bool {
	return len(groups) > 0 && !slices.ContainsFunc(groups, func(g *kserve.ModelInstanceGroup) bool { return !g.GetPassive() })
}

// errPassive refuses requests to a version that has only passive instances.
func (v *Version) errPassive() error {
	return infer.Errorf(infer.Unavailable, "model '%s' has only passive instances, which take no requests", v.info.Name)
}
