package models

import (
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
)

// newScheduler makes the scheduler that a version's config asks for.
func (r *Registry) newScheduler(l *loaded) (scheduler.Scheduler, error) {
	if l.info.Config.GetSequenceBatching() != nil {
		return r.newSequence(l), nil
	}
	return scheduler.NewBatcher(scheduler.BatcherConfig{
		Model: l.info.Name, Observer: l.statistics, Graph: r.graph,
		Log: r.config.Log,
	}), nil
}

// events is what a version's instances report to: the scheduler, behind
// whatever stands between it and them.
func (r *Registry) events(l *loaded) backend.Events {
	return l.scheduler
}

// unsupported refuses what a config asks for and no room does yet: answers that
// silently differ would be worse.
func unsupported(c *kserve.ModelConfig) error {
	what := ""
	switch {
	case c.GetEnsembleScheduling() != nil || c.GetPlatform() == "ensemble":
		what = "ensembles"
	default:
		return nil
	}
	return infer.Errorf(infer.Unsupported, "model '%s' needs %s, which this server does not support", c.GetName(), what)
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
	add(c.GetDynamicBatching() != nil, "dynamic_batching (each request is executed by itself)")
	add(c.GetResponseCache().GetEnable(), "response_cache")
	add(len(c.GetModelWarmup()) > 0, "model_warmup")
	limited := slices.ContainsFunc(c.GetInstanceGroup(), func(g *kserve.ModelInstanceGroup) bool { return g.GetRateLimiter() != nil })
	add(limited, "rate_limiter")
	return list
}
