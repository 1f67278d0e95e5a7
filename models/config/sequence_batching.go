package config

import (
	"slices"

	"github.com/nereid-serving/nereid/kserve"
)

func validateSequenceBatching(config *kserve.ModelConfig, sequence *kserve.ModelSequenceBatching) error {
	name := config.Name
	if config.GetResponseCache().GetEnable() {
		return invalid("Response Cache does not currently support model %s with sequence batching scheduler. Please disable the response cache.", name)
	}
	for _, kind := range []kserve.ModelSequenceBatching_Control_Kind{
		kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START,
		kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END,
		kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY,
		kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID,
	} {
		if err := validateControl(name, sequence, kind); err != nil {
			return err
		}
	}
	for _, size := range sequence.GetOldest().GetPreferredBatchSize() {
		switch {
		case size <= 0:
			return invalid("sequence batching preferred batch size must be positive for %s", name)
		case size > config.MaxBatchSize:
			return invalid("sequence batching preferred batch size must be <= max batch size for %s", name)
		}
	}
	if u := sequence.GetDirect().GetMinimumSlotUtilization(); u < 0 || u > 1 {
		return invalid("sequence batching minimum slot utilization must be in range (0.0, 1.0] for %s", name)
	}
	return nil
}

// validateControl checks the control tensors. At most one may be of the kind.
func validateControl(name string, sequence *kserve.ModelSequenceBatching, kind kserve.ModelSequenceBatching_Control_Kind) error {
	tensors := make(map[string]bool)
	found := false
	for _, input := range sequence.ControlInput {
		switch {
		case input.Name == "":
			return invalid("sequence batching control tensor must have a name for %s", name)
		case tensors[input.Name]:
			return invalid("sequence batching control tensor '%s' is specified for multiple control kinds for %s", input.Name, name)
		}
		tensors[input.Name] = true // bound: the config
		for _, control := range input.Control {
			if control.Kind != kind {
				continue
			}
			if found {
				return invalid("sequence batching specifies multiple %s tensors for %s", kind, name)
			}
			found = true
			check := validateBooleanControl
			if kind == kserve.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID {
				check = validateCorrelationControl
			}
			if err := check(name, control); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateBooleanControl checks a control with one value for false and one for true.
func validateBooleanControl(name string, control *kserve.ModelSequenceBatching_Control) error {
	set := 0
	pairs := []struct {
		field string
		n     int
	}{
		{"int32_false_true", len(control.Int32FalseTrue)},
		{"fp32_false_true", len(control.Fp32FalseTrue)},
		{"bool_false_true", len(control.BoolFalseTrue)},
	}
	for _, p := range pairs {
		if p.n > 0 {
			set++
		}
	}
	switch {
	case set == 0:
		return invalid("sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", control.Kind, name)
	case set > 1:
		return invalid("sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for %s for %s", control.Kind, name)
	}
	for _, p := range pairs {
		if p.n > 0 && p.n != 2 {
			return invalid("sequence batching control '%s' must have exactly 2 entries for %s for %s", p.field, control.Kind, name)
		}
	}
	return nil
}

// correlationTypes are the possible types of a correlation id.
var correlationTypes = []kserve.DataType{
	kserve.DataType_TYPE_UINT64, kserve.DataType_TYPE_INT64, kserve.DataType_TYPE_UINT32,
	kserve.DataType_TYPE_INT32, kserve.DataType_TYPE_STRING,
}

func validateCorrelationControl(name string, control *kserve.ModelSequenceBatching_Control) error {
	if len(control.Int32FalseTrue)+len(control.Fp32FalseTrue)+len(control.BoolFalseTrue) > 0 {
		return invalid("sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for %s for %s", control.Kind, name)
	}
	if !slices.Contains(correlationTypes, control.DataType) {
		return invalid("unexpected data type for control %s for %s. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING", control.Kind, name)
	}
	return nil
}
