package config

import (
	"maps"
	"slices"

	"github.com/nereid-serving/nereid/kserve"
)

// validateEnsemble checks an ensemble as far as its own configuration tells.
func validateEnsemble(config *kserve.ModelConfig, ensembling *kserve.ModelEnsembling) error {
	name := config.Name
	switch {
	case config.Platform != PlatformEnsemble:
		return invalid("ensemble scheduling cannot be set for model '%s' whose platform is not ensemble", name)
	case len(config.InstanceGroup) > 0:
		return invalid("instance group should not be specified for ensemble '%s'", name)
	case config.Optimization != nil:
		return invalid("optimization should not be specified for ensemble '%s'", name)
	case len(config.ModelWarmup) > 0:
		return invalid("model_warmup can not be specified for ensemble '%s'", name)
	case len(ensembling.Step) == 0:
		return invalid("must specify 'step' for ensemble '%s'", name)
	}
	for i, step := range ensembling.Step {
		switch {
		case step.ModelName == "":
			return invalid("must specify 'model_name' in step %d of ensemble '%s'", i, name)
		case len(step.InputMap) == 0:
			return invalid("must specify 'input_map' in step %d of ensemble '%s'", i, name)
		case len(step.OutputMap) == 0:
			return invalid("must specify 'output_map' in step %d of ensemble '%s'", i, name)
		}
	}
	return validateEnsembleGraph(config, ensembling.Step)
}

// validateEnsembleGraph checks that every tensor of the ensemble is produced and consumed. A step
// produces its outputs once all its inputs exist.
//
// bound: the config
func validateEnsembleGraph(config *kserve.ModelConfig, steps []*kserve.ModelEnsembling_Step) error {
	name := config.Name
	producer := make(map[string]int) // of a tensor: the step
	consumed := make(map[string]bool)
	for i, step := range steps {
		for _, output := range slices.Sorted(maps.Keys(step.OutputMap)) {
			tensor := step.OutputMap[output]
			if _, twice := producer[tensor]; twice {
				return invalid("ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step %d", tensor, name, i)
			}
			producer[tensor] = i
		}
		for _, tensor := range step.InputMap {
			consumed[tensor] = true
		}
	}
	mentioned := func(tensor string) bool {
		_, produced := producer[tensor]
		return produced || consumed[tensor]
	}
	ready, outside := make(map[string]bool), make(map[string]bool)
	for _, in := range config.Input {
		if !mentioned(in.Name) {
			return invalid("ensemble input '%s' for ensemble %s' is not used", in.Name, name)
		}
		ready[in.Name], outside[in.Name] = true, true
	}
	for _, out := range config.Output {
		if !mentioned(out.Name) {
			return invalid("ensemble output '%s' for ensemble %s' is not used", out.Name, name)
		}
		outside[out.Name] = true
	}
	connect(steps, ready)
	for _, out := range config.Output {
		if ready[out.Name] {
			continue
		}
		if tensor := missing(out.Name, steps, producer, ready); tensor != out.Name {
			return invalid("output '%s' for ensemble '%s' is not written: at least one of its depending tensors, '%s', is not connected", out.Name, name, tensor)
		}
		return invalid("output '%s' for ensemble '%s' is not written", out.Name, name)
	}
	all := maps.Clone(consumed)
	for tensor := range producer {
		all[tensor] = true
	}
	for _, tensor := range slices.Sorted(maps.Keys(all)) {
		_, produced := producer[tensor]
		if !outside[tensor] && !(produced && consumed[tensor]) {
			return invalid("ensemble tensor '%s' is unused in ensemble '%s'", tensor, name)
		}
	}
	return nil
}

// connect adds to ready the tensors that can be made from those in it. Each round examines only
// steps that have not run, and the rounds end when no step can run.
//
// bound: the config
func connect(steps []*kserve.ModelEnsembling_Step, ready map[string]bool) {
	done := make([]bool, len(steps))
	for progress := true; progress; {
		progress = false
		for i, step := range steps {
			if done[i] {
				continue
			}
			complete := true
			for _, tensor := range step.InputMap {
				complete = complete && ready[tensor]
			}
			if !complete {
				continue
			}
			done[i], progress = true, true
			for _, tensor := range step.OutputMap {
				ready[tensor] = true
			}
		}
	}
}

// missing follows a tensor that is not ready back to one that it depends on and that no step makes.
// In a cycle it returns the tensor itself.
//
// bound: the config
func missing(tensor string, steps []*kserve.ModelEnsembling_Step, producer map[string]int, ready map[string]bool) string {
	seen := make(map[string]bool)
	for at := tensor; !seen[at]; {
		seen[at] = true
		step, produced := producer[at]
		if !produced {
			return at
		}
		for _, input := range slices.Sorted(maps.Values(steps[step].InputMap)) {
			if !ready[input] {
				at = input
				break
			}
		}
	}
	return tensor
}
