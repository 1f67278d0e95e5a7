package models

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

// planStacking reads how the model wants its batches.
func (r *Registry) planStacking(l *loaded) (err error) {
	if _, other := stacked.Asked(l.info.Config); other != "" {
		r.config.Log.Warn().Msgf("parameter BATCH_MODE of model '%s' is %q, which means nothing to the server; it knows \"stacked\"", l.info.Name, other)
	}
	if l.stacking, err = stacked.NewPlan(l.info.Config); l.stacking != nil {
		l.stacking.LogTo(r.config.Log)
	}
	return err
}

// stack has the version's instances get their batches as one request, if the
// model wants that.
func (r *Registry) stack(l *loaded, next backend.Events) backend.Events {
	if l.stacking == nil {
		return next
	}
	events := stacked.NewEvents(l.stacking, r.config.Allocate, next)
	l.between = append(l.between, events)
	return events
}
