package version

import (
	"context"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ensemble"
)

// stepIdentity is the model named by a step of an ensemble.
func stepIdentity(step *kserve.ModelEnsembling_Step) repository.Identity {
	return repository.Identity{Namespace: step.GetModelNamespace(), Name: step.GetModelName()}
}

// inherit gives outputs of an ensemble without labels the labels of the outputs they are made from.
//
// bound: the config
func (l *Loader) inherit(ensemble repository.Identity, c *kserve.ModelConfig, labels map[string][]string) map[string][]string {
	if c.GetPlatform() != config.PlatformEnsemble {
		return labels
	}
	for _, step := range c.GetEnsembleScheduling().GetStep() {
		v, err := l.registry.Latest(stepIdentity(step), ensemble)
		if err != nil {
			continue // it has gone; the ensemble follows
		}
		for output, tensor := range step.GetOutputMap() {
			at := slices.IndexFunc(c.GetOutput(), func(out *kserve.ModelOutput) bool { return out.GetName() == tensor })
			if at < 0 || c.GetOutput()[at].GetLabelFilename() != "" || v.info.Labels[output] == nil {
				continue
			}
			if labels == nil {
				labels = make(map[string][]string)
			}
			labels[tensor] = v.info.Labels[output]
		}
	}
	return labels
}

// newEnsemble makes the scheduler of an ensemble.
//
// bound: the config
func (l *Loader) newEnsemble(v *Version) (scheduler.Scheduler, error) {
	c := v.info.Config
	parts := make(map[string]repository.Identity)
	v.parts = make(repository.Set)
	e := ensemble.Config{
		Model: v.info.Name, Batches: c.GetMaxBatchSize() > 0, Decoupled: v.info.Decoupled(),
		MaxInflight: int(c.GetEnsembleScheduling().GetMaxInflightRequests()),
		Composer:    composer{l.registry, parts}, Observer: v.statistics, Memory: l.settings.Memory, Log: l.settings.Log,
	}
	for _, in := range c.GetInput() {
		e.Inputs = append(e.Inputs, in.GetName())
	}
	for _, out := range c.GetOutput() {
		e.Outputs = append(e.Outputs, ensemble.Output{Tensor: out.GetName(), Dims: config.Announced(out)})
	}
	for _, step := range c.GetEnsembleScheduling().GetStep() {
		called, err := l.registry.Latest(stepIdentity(step), v.info.Identity())
		if err != nil {
			return nil, err
		}
		part := called.info.Identity()
		parts[part.String()] = part
		v.parts[part] = true
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
		l.settings.Log.Info().Msgf("Ensemble model '%s' configured with max_inflight_requests: %d", v.info.Name, e.MaxInflight)
	}
	return ensemble.New(e), nil
}

// composer finds the models that an ensemble calls, by the names in its steps.
type composer struct {
	registry Registry
	parts    map[string]repository.Identity
}

var _ ensemble.Composer = composer{}

// Hold implements ensemble.Composer.
func (c composer) Hold(model string, number int64) (ensemble.Composed, error) {
	h, err := c.registry.Hold(c.parts[model], number)
	if err != nil {
		return nil, err
	}
	return composed{h.version}, nil
}

// composed is a version that a request of an ensemble holds.
type composed struct{ *Version }

// Submit implements ensemble.Composed.
func (c composed) Submit(ctx context.Context, req *infer.Request, send infer.Sender) (by backend.Awaiter, err error) {
	err = c.run(ctx, req, send, func(ctx context.Context, req *infer.Request, send infer.Sender) (err error) {
		by, err = c.scheduler.Begin(ctx, req, send)
		return err
	})
	return by, err
}

// Batches implements ensemble.Composed.
func (c composed) Batches() bool { return c.spec.Batches() }

// Dims implements ensemble.Composed. The version may be newer than the ensemble and lack the input.
func (c composed) Dims(input string) []int64 { return c.spec.Dims(input) }

// Release implements ensemble.Composed.
func (c composed) Release() { c.holds.release() }

// ensembles is the backend of ensembles. They have no instances, and their configuration describes
// them.
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

// Capabilities implements backend.Model.
func (ensembleModel) Capabilities() backend.ModelCapabilities { return backend.ModelCapabilities{} }

// Close implements backend.Model.
func (ensembleModel) Close(context.Context) error { return nil }
