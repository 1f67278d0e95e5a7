package models

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
)

// newScheduler makes the scheduler that a version's config asks for.
func (r *Registry) newScheduler(l *loaded, d *repository.Description) (scheduler.Scheduler, error) {
	if l.info.Config.GetEnsembleScheduling() != nil {
		return r.newEnsemble(l)
	}
	if err := r.planStacking(l); err != nil {
		return nil, err
	}
	batching, err := r.newBatching(l, d)
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
// whatever stands between it and them. The limiter is next to it, as a batch is
// formed when its turn has come, and stacked then.
func (r *Registry) events(l *loaded) backend.Events {
	return r.stack(l, r.limit(l, l.barrier))
}
