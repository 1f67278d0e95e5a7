package version

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/sequence"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

// newScheduler makes the scheduler of a version's config.
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
		MaxQueue: l.settings.MaxQueue, Log: l.settings.Log,
	}), nil
}

// events returns the chain through which a version's instances report: stacking, rate limiter,
// warm-up barrier, scheduler. The rate limiter is next to the barrier, because a batch is formed
// when its turn comes, and stacked afterwards.
func (l *Loader) events(v *Version) backend.Events {
	return l.stack(v, l.limit(v, v.barrier))
}

// newSequence makes the scheduler of a model with sequence_batching.
func (l *Loader) newSequence(v *Version) scheduler.Scheduler {
	c := v.info.Config
	var outputs []string
	for _, out := range c.GetOutput() {
		outputs = append(outputs, out.GetName()) // bound: the config
	}
	return sequence.New(sequence.Config{
		Model: v.info.Name, Batching: c.GetSequenceBatching(), MaxBatch: int(c.GetMaxBatchSize()), States: v.states,
		Alike: batching.NewAlike(c), Outputs: outputs, Decoupled: c.GetModelTransactionPolicy().GetDecoupled(),
		Observer: v.statistics, Graph: l.graph, Log: l.settings.Log, Allocate: l.settings.Padding, Memory: l.settings.Memory,
		MaxQueue: l.settings.MaxQueue, HoldRequests: l.settings.DelayRequests, HoldBacklog: l.settings.DelayBacklog,
	})
}

// instanceKeeper is an Events that keeps data for each instance.
type instanceKeeper interface {
	Forget(in backend.Instance)
}

// limit makes the version's instances wait for their turn, if there is a rate limiter.
func (l *Loader) limit(v *Version, next backend.Events) backend.Events {
	if l.settings.Limiter == nil {
		return next
	}
	events := l.settings.Limiter.Events(next)
	v.between = append(v.between, events)
	return events
}

// planStacking reads the model's settings for stacked batches.
func (l *Loader) planStacking(v *Version) (err error) {
	if _, other := stacked.Asked(v.info.Config); other != "" {
		l.settings.Log.Warn().Msgf("parameter BATCH_MODE of model '%s' is '%s', which is unknown; want 'stacked'", v.info.Name, other)
	}
	if v.stacking, err = stacked.NewPlan(v.info.Config); v.stacking != nil {
		v.stacking.LogTo(l.settings.Log)
	}
	return err
}

// stack delivers batches to the version's instances as one request, if the model asks for it.
func (l *Loader) stack(v *Version, next backend.Events) backend.Events {
	if v.stacking == nil {
		return next
	}
	events := stacked.NewEvents(v.stacking, l.settings.Allocate, l.settings.Memory, next)
	v.between = append(v.between, events)
	return events
}
