package catalog

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/config"
	"github.com/nereid-serving/nereid/models/repository"
)

// Compose checks an ensemble against the models that its steps call, as their
// latest versions that are ready describe themselves, and decides whether it is
// decoupled. Any other model is returned as it is. The error is Triton's text.
func (k *Catalog) Compose(d *repository.Description) (*repository.Description, error) {
	if d.Config.GetPlatform() != config.PlatformEnsemble {
		return d, nil
	}
	composing := make(map[string]*kserve.ModelConfig)
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
