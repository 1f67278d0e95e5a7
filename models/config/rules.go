package config

import (
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Rules are the server's part in what a configuration may say and leave out.
type Rules struct {
	// Strict makes a configuration complete as it was written: what is missing is
	// refused, as the model is not asked for it.
	Strict bool
	// GPUs are the ids of the GPUs on which instances may be placed, ascending;
	// empty: there are none, and KIND_GPU is refused.
	GPUs []int32
	// MinCapability is the least compute capability of GPUs, for texts; 0 is 6.
	MinCapability float64
	// Preferred returns the instance groups that a backend prefers: their kind, count and GPUs. Nil: none prefers any.
	Preferred func(backend string) []*kserve.ModelInstanceGroup
}

// place decides where the instances of a configuration are placed.
func (r Rules) place(config *kserve.ModelConfig) {
	var preferred []*kserve.ModelInstanceGroup
	if r.Preferred != nil {
		preferred = r.Preferred(config.Backend)
	}
	normaliseGroups(config, r.GPUs, preferred...)
}

// Fill completes what was written of the model in a directory of that name, and
// checks all that the model itself has no say in. Content is what the first
// sub-directory of the model holds: from it a backend is guessed. The error is an
// *infer.Error with Triton's text.
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
	r.place(config)
	return nil
}

// CheckGroups says which instances of a filled configuration cannot be placed.
// The error is an *infer.Error for clients.
func (r Rules) CheckGroups(config *kserve.ModelConfig) error { return r.validateGroups(config) }

// Complete returns a filled configuration with what its model answered to the
// question for auto-complete (JSON, see ParseJSON; nil: nothing), checked whole.
// What was filled stays as it is. The error is an *infer.Error for clients.
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
	r.place(config)
	if config.Platform == PlatformEnsemble && config.ModelTransactionPolicy == nil {
		config.ModelTransactionPolicy = &kserve.ModelTransactionPolicy{}
	}
	if err := r.validateGroups(config); err != nil {
		return nil, err
	}
	for _, validate := range []func(*kserve.ModelConfig) error{validateBatchTypes, validate, validateTensors} {
		if err := validate(config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// merge takes from what a model answered the fields that it may decide: all of
// them, or none if there is an error.
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

// scheduling is the number of the scheduler's field, 0 if none is chosen.
func scheduling(config *kserve.ModelConfig) int32 {
	message := config.ProtoReflect()
	chosen := message.WhichOneof(message.Descriptor().Oneofs().ByName("scheduling_choice"))
	if chosen == nil {
		return 0
	}
	return int32(chosen.Number())
}
