package catalog

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// Compose checks an ensemble against the latest ready versions of the models in its steps, and
// determines whether it is decoupled. Any other model is returned unchanged. The error is Triton's
// text.
func (k *Catalog) Compose(d *repository.Description) (*repository.Description, error) {
	if d.Config.GetPlatform() != config.PlatformEnsemble {
		return d, nil
	}
	composing := make(map[string]*kserve.ModelConfig) // bound: the models
	for step := range d.Composing() {
		v, err := k.Latest(step, d.Identity())
		if err != nil {
			return nil, infer.Errorf(infer.InvalidArg, "ensemble '%s' depends on '%s' which has no loaded version.", d.Name, step)
		}
		composing[step.Name] = v.Info().Config
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
