package models

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ensemble"
)

// compose checks an ensemble against the models that its steps call, as their
// latest versions that are ready describe themselves, and decides whether it is
// decoupled. Any other model is returned as it is. The error is Triton's text.
func (r *Registry) compose(d *repository.Description) (*repository.Description, error) {
	if d.Config.GetPlatform() != config.PlatformEnsemble {
		return d, nil
	}
	composing := make(map[string]*kserve.ModelConfig)
	for step := range d.Composing() {
		l, err := r.latest(step, d.Identity())
		if err != nil {
			return nil, invalid("ensemble '%s' depends on '%s' which has no loaded version.", d.Name, step)
		}
		composing[step.Name] = l.info.Config
	}
	decoupled, err := config.CheckComposition(d.Config, composing)
	if err != nil {
		return nil, err
	}
	composed := *d
	composed.Config = config.Clone(d.Config)
	composed.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: decoupled}
	return &composed, nil
}

// stepIdentity is the model that a step of an ensemble names.
func stepIdentity(step *kserve.ModelEnsembling_Step) repository.Identity {
	return repository.Identity{Namespace: step.GetModelNamespace(), Name: step.GetModelName()}
}

// inherit gives the outputs of an ensemble that have no labels of their own those
// of the outputs that they are made by.
func (r *Registry) inherit(ensemble repository.Identity, c *kserve.ModelConfig, labels map[string][]string) map[string][]string {
	if c.GetPlatform() != config.PlatformEnsemble {
		return labels
	}
	for _, step := range c.GetEnsembleScheduling().GetStep() {
		l, err := r.latest(stepIdentity(step), ensemble)
		if err != nil {
			continue // it has gone; the ensemble follows
		}
		for output, tensor := range step.GetOutputMap() {
			at := slices.IndexFunc(c.GetOutput(), func(out *kserve.ModelOutput) bool { return out.GetName() == tensor })
			if at < 0 || c.GetOutput()[at].GetLabelFilename() != "" || l.info.Labels[output] == nil {
				continue
			}
			if labels == nil {
				labels = make(map[string][]string)
			}
			labels[tensor] = l.info.Labels[output]
		}
	}
	return labels
}

// newEnsemble makes the scheduler of an ensemble.
func (r *Registry) newEnsemble(l *loaded) (scheduler.Scheduler, error) {
	c := l.info.Config
	parts := make(map[string]repository.Identity)
	l.parts = make(repository.Set)
	e := ensemble.Config{
		Model: l.info.Name, Batches: c.GetMaxBatchSize() > 0, Decoupled: l.info.Decoupled(),
		MaxInflight: int(c.GetEnsembleScheduling().GetMaxInflightRequests()),
		Composer:    composer{r, parts}, Observer: l.statistics, Log: r.config.Log,
	}
	for _, in := range c.GetInput() {
		e.Inputs = append(e.Inputs, in.GetName())
	}
	for _, out := range c.GetOutput() {
		e.Outputs = append(e.Outputs, ensemble.Output{Tensor: out.GetName(), Dims: config.Announced(out)})
	}
	for _, step := range c.GetEnsembleScheduling().GetStep() {
		called, err := r.latest(stepIdentity(step), l.info.identity())
		if err != nil {
			return nil, err
		}
		part := called.info.identity()
		parts[part.String()] = part
		l.parts[part] = true
		s := ensemble.Step{Model: part.String(), Version: step.GetModelVersion(), Decoupled: called.info.Decoupled()}
		for _, in := range called.info.Config.GetInput() {
			if tensor, mapped := step.GetInputMap()[in.GetName()]; mapped {
				s.Inputs = append(s.Inputs, ensemble.Link{Name: in.GetName(), Tensor: tensor})
			}
		}
		for _, out := range called.info.Config.GetOutput() {
			if tensor, mapped := step.GetOutputMap()[out.GetName()]; mapped {
				s.Outputs = append(s.Outputs, ensemble.Link{Name: out.GetName(), Tensor: tensor})
			}
		}
		e.Steps = append(e.Steps, s)
	}
	if e.MaxInflight > 0 {
		r.config.Log.Info().Msgf("Ensemble model '%s' configured with max_inflight_requests: %d", l.info.Name, e.MaxInflight)
	}
	return ensemble.New(e), nil
}

// ensembles is the backend of ensembles: they have no instances, and what they
// are follows from their configuration.
type ensembles struct{}

// Open implements backend.Backend.
func (ensembles) Open(backend.Env) (backend.Model, error) { return ensembleModel{}, nil }

type ensembleModel struct{}

// AutoComplete implements backend.Model: an ensemble has nothing to say.
func (ensembleModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

// Start implements backend.Model.
func (ensembleModel) Start(context.Context, *kserve.ModelConfig, []byte, backend.Events) error {
	return nil
}

// Instances implements backend.Model.
func (ensembleModel) Instances() []backend.Instance { return nil }

// Close implements backend.Model.
func (ensembleModel) Close(context.Context) error { return nil }
