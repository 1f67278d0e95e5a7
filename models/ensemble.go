package models

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/scheduler"
)

// Component is a model that an ensemble calls.
type Component struct {
	Name string
	// Versions that steps name, ascending; none if they take whichever is the latest.
	Versions []int64
}

// Composing lists the models that the steps of an ensemble call, in the order in
// which they are first named; nil for any other model.
func (d *Description) Composing() []Component {
	var list []Component
	for _, step := range d.Config.GetEnsembleScheduling().GetStep() {
		at := slices.IndexFunc(list, func(c Component) bool { return c.Name == step.GetModelName() })
		if at < 0 {
			at = len(list)
			list = append(list, Component{Name: step.GetModelName()})
		}
		c := &list[at]
		if version := step.GetModelVersion(); version != infer.LatestVersion {
			if place, there := slices.BinarySearch(c.Versions, version); !there {
				c.Versions = slices.Insert(c.Versions, place, version)
			}
		}
	}
	return list
}

// compose checks an ensemble against the models that its steps call, as their
// latest versions that are ready describe themselves, and decides whether it is
// decoupled. Any other model is returned as it is. The error is Triton's text.
func (r *Registry) compose(d *Description) (*Description, error) {
	if d.Config.GetPlatform() != platformEnsemble {
		return d, nil
	}
	composing := make(map[string]*kserve.ModelConfig)
	for _, c := range d.Composing() {
		l, err := r.latest(c.Name)
		if err != nil {
			return nil, invalid("ensemble '%s' depends on '%s' which has no loaded version.", d.Name, c.Name)
		}
		composing[c.Name] = l.info.Config
	}
	decoupled, err := checkComposition(d.Config, composing)
	if err != nil {
		return nil, err
	}
	composed := *d
	composed.Config = cloneConfig(d.Config)
	composed.Config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: decoupled}
	return &composed, nil
}

// notComposed says that an ensemble does not fit the models that it calls.
func (r *Registry) notComposed(name string, err error) error {
	r.config.Log.Error().Msgf("failed to load '%s': %s", name, err)
	return infer.Errorf(infer.InvalidArg, "load failed for model '%s': %s\n", name, err)
}

// latest is the highest version of a model that is ready, also while the server
// starts.
func (r *Registry) latest(name string) (*loaded, error) {
	m := (*r.serving.Load())[name]
	if m == nil || len(m.ready) == 0 {
		return nil, infer.Errorf(infer.NotFound, "Request for unknown model: '%s' has no available versions", name)
	}
	return m.versions[m.ready[len(m.ready)-1]].loaded, nil
}

// inherit gives the outputs of an ensemble that have no labels of their own those
// of the outputs that they are made by.
func (r *Registry) inherit(config *kserve.ModelConfig, labels map[string][]string) map[string][]string {
	if config.GetPlatform() != platformEnsemble {
		return labels
	}
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		l, err := r.latest(step.GetModelName())
		if err != nil {
			continue // it has gone; the ensemble follows
		}
		for output, tensor := range step.GetOutputMap() {
			at := slices.IndexFunc(config.GetOutput(), func(out *kserve.ModelOutput) bool { return out.GetName() == tensor })
			if at < 0 || config.GetOutput()[at].GetLabelFilename() != "" || l.info.Labels[output] == nil {
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
	config := l.info.Config
	c := scheduler.EnsembleConfig{
		Model: l.info.Name, Batches: config.GetMaxBatchSize() > 0, Decoupled: l.info.Decoupled(),
		MaxInflight: int(config.GetEnsembleScheduling().GetMaxInflightRequests()),
		Composer:    composer{r}, Observer: l.statistics, Log: r.config.Log,
	}
	for _, in := range config.GetInput() {
		c.Inputs = append(c.Inputs, in.GetName())
	}
	for _, out := range config.GetOutput() {
		c.Outputs = append(c.Outputs, scheduler.EnsembleOutput{Tensor: out.GetName(), Dims: announced(out)})
	}
	for _, step := range config.GetEnsembleScheduling().GetStep() {
		called, err := r.latest(step.GetModelName())
		if err != nil {
			return nil, err
		}
		s := scheduler.EnsembleStep{Model: step.GetModelName(), Version: step.GetModelVersion(), Decoupled: called.info.Decoupled()}
		for _, in := range called.info.Config.GetInput() {
			if tensor, mapped := step.GetInputMap()[in.GetName()]; mapped {
				s.Inputs = append(s.Inputs, scheduler.EnsembleLink{Name: in.GetName(), Tensor: tensor})
			}
		}
		for _, out := range called.info.Config.GetOutput() {
			if tensor, mapped := step.GetOutputMap()[out.GetName()]; mapped {
				s.Outputs = append(s.Outputs, scheduler.EnsembleLink{Name: out.GetName(), Tensor: tensor})
			}
		}
		c.Steps = append(c.Steps, s)
	}
	if c.MaxInflight > 0 {
		r.config.Log.Info().Msgf("Ensemble model '%s' configured with max_inflight_requests: %d", l.info.Name, c.MaxInflight)
	}
	return scheduler.NewEnsemble(c), nil
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
