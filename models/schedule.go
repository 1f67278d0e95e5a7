package models

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
)

// newScheduler makes the scheduler that a version's config asks for.
func (r *Registry) newScheduler(l *loaded, d *Description) (scheduler.Scheduler, error) {
	if l.info.Config.GetEnsembleScheduling() != nil {
		return r.newEnsemble(l)
	}
	if err := r.planStacking(l); err != nil {
		return nil, err
	}
	batching, err := r.newBatching(l, d) // whose errors matter to every model
	if err != nil {
		return nil, err
	}
	if l.info.Config.GetSequenceBatching() != nil {
		return r.newSequence(l), nil
	}
	return scheduler.NewBatcher(scheduler.BatcherConfig{
		Model: l.info.Name, Observer: l.statistics, Graph: r.graph, Batching: batching,
		Log: r.config.Log,
	}), nil
}

// events is what a version's instances report to: the scheduler, behind
// whatever stands between it and them.
func (r *Registry) events(l *loaded) backend.Events {
	return r.stack(l, l.gate) // the gate is next to the scheduler
}

// newGate makes the gate in front of a version's scheduler.
func (r *Registry) newGate(l *loaded, d *Description) *gate {
	g := newGate(l.scheduler, r.config.Log.With().Str("model", l.info.Name).Int64("version", l.info.Version).Logger())
	if samples := l.info.Config.GetModelWarmup(); len(samples) > 0 {
		w := &warmup{
			samples: samples, spec: l.spec, version: l.info.Version, open: d.open, observer: l.statistics,
			iterative: l.info.Config.GetSequenceBatching().GetIterativeSequence(), log: r.config.Log,
		}
		g.warm = w.run
	}
	return g
}

// ignored names what a config asks for and no room does yet, where the answers
// are the same without it.
func ignored(c *kserve.ModelConfig) []string {
	var list []string
	add := func(yes bool, what string) {
		if yes {
			list = append(list, what)
		}
	}
	limited := slices.ContainsFunc(c.GetInstanceGroup(), func(g *kserve.ModelInstanceGroup) bool { return g.GetRateLimiter() != nil })
	add(limited, "rate_limiter")
	return list
}
