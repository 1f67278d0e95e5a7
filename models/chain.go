package models

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
)

// newScheduler makes the scheduler that a version's config asks for.
func (l *Loader) newScheduler(v *Version, d *repository.Description) (scheduler.Scheduler, error) {
	if v.info.Config.GetEnsembleScheduling() != nil {
		return l.newEnsemble(v)
	}
	if err := l.planStacking(v); err != nil {
		return nil, err
	}
	batching, err := l.newBatching(v, d)
	if err != nil {
		return nil, err
	}
	if v.info.Config.GetSequenceBatching() != nil {
		return l.newSequence(v), nil
	}
	return scheduler.NewBatcher(scheduler.BatcherConfig{
		Model: v.info.Name, Observer: v.statistics, Graph: l.graph, Batching: batching,
		Log: l.settings.Log,
	}), nil
}

// events is what a version's instances report to: the scheduler, behind
// whatever stands between it and them. The limiter is next to it, as a batch is
// formed when its turn has come, and stacked then.
func (l *Loader) events(v *Version) backend.Events {
	return l.stack(v, l.limit(v, v.barrier))
}
