package config

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Rules are the server's settings for reading configurations.
type Rules struct {
	// Strict requires complete configurations: missing fields are refused, because the model is not
	// asked.
	Strict bool
	// GPUs are the ids of the GPUs for instances, ascending; without any, KIND_GPU is refused.
	GPUs []int32
	// MinCapability is the least compute capability of GPUs, for texts; 0 is 6.
	MinCapability float64
	// Preferred returns the instance groups that a backend prefers: their kind, count and GPUs; may
	// be nil.
	Preferred func(backend string) []*kserve.ModelInstanceGroup
}

// assignGroups completes the instance groups of a configuration.
func (r Rules) assignGroups(config *kserve.ModelConfig) {
	var preferred []*kserve.ModelInstanceGroup
	if r.Preferred != nil {
		preferred = r.Preferred(config.Backend)
	}
	normaliseGroups(config, r.GPUs, preferred...)
}

// Fill completes the written configuration of the model in a directory of that name, and performs
// all checks that do not depend on the model's answer. content lists the first sub-directory of the
// model, from which a missing backend is guessed. The error is an *infer.Error with Triton's text.
func (r Rules) Fill(config *kserve.ModelConfig, directory string, content []File) error {
	if err := autofill(config, directory, content); err != nil {
		return err
	}
	normalise(config)
	if err := validate(config); err != nil {
		return err
	}
	if r.Strict {
		if err := validateTensors(config); err != nil {
			return err
		}
	}
	if config.Name != directory {
		return invalid("unexpected directory name '%s' for model '%s', directory name must equal model name", directory, config.Name)
	}
	r.assignGroups(config)
	return nil
}

// Complete returns a filled configuration completed with the model's answer to auto-complete (JSON,
// see ParseJSON; or nil) and fully checked. The filled configuration is unchanged. The error is an
// *infer.Error for clients.
func (r Rules) Complete(filled *kserve.ModelConfig, answer []byte) (*kserve.ModelConfig, error) {
	config := Clone(filled)
	if answer != nil {
		given, err := ParseJSON(answer)
		if err != nil {
			return nil, err
		}
		if err := merge(config, given); err != nil {
			return nil, err
		}
	}
	normalise(config)
	r.assignGroups(config)
	if config.Platform == PlatformEnsemble && config.ModelTransactionPolicy == nil {
		config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{}
	}
	if err := r.CheckGroups(config); err != nil {
		return nil, err
	}
	for _, validate := range []func(*kserve.ModelConfig) error{validateBatchTypes, validate, validateTensors} {
		if err := validate(config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// merge takes the fields from the model's answer that it may decide: all of them, or none after an
// error.
func merge(config, answer *kserve.ModelConfig) error {
	if old := scheduling(config); old == 0 {
		config.SchedulingChoice = answer.SchedulingChoice
	} else if old != scheduling(answer) {
		return infer.Errorf(infer.Internal, "Cannot update scheduling choice from %d to %d when auto-completing.", old, old)
	}
	config.MaxBatchSize = answer.MaxBatchSize
	config.Input = answer.Input
	config.Output = answer.Output
	if answer.ModelTransactionPolicy != nil {
		config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{Decoupled: answer.ModelTransactionPolicy.Decoupled}
	}
	return nil
}

// scheduling is the number of the chosen scheduler's field, or 0.
func scheduling(config *kserve.ModelConfig) int32 {
	message := config.ProtoReflect()
	chosen := message.WhichOneof(message.Descriptor().Oneofs().ByName("scheduling_choice"))
	if chosen == nil {
		return 0
	}
	return int32(chosen.Number())
}
