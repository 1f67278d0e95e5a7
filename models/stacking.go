package models

import (
	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/scheduler/stacked"
)

// planStacking reads how the model wants its batches.
func (l *Loader) planStacking(v *Version) (err error) {
	if _, other := stacked.Asked(v.info.Config); other != "" {
		l.settings.Log.Warn().Msgf("parameter BATCH_MODE of model '%s' is %q, which means nothing to the server; it knows \"stacked\"", v.info.Name, other)
	}
	if v.stacking, err = stacked.NewPlan(v.info.Config); v.stacking != nil {
		v.stacking.LogTo(l.settings.Log)
	}
	return err
}

// stack has the version's instances get their batches as one request, if the
// model wants that.
func (l *Loader) stack(v *Version, next backend.Events) backend.Events {
	if v.stacking == nil {
		return next
	}
	events := stacked.NewEvents(v.stacking, l.settings.Allocate, next)
	v.between = append(v.between, events)
	return events
}
