package config

import (
	"fmt"
	"slices"

	"github.com/nereid-serving/nereid/kserve"
)

// defaultSequenceIdle is how long a sequence may be idle, in microseconds,
// where the configuration does not say.
const defaultSequenceIdle = 1_000_000

// normalise fills in the defaults that the configuration's JSON form shows. A
// second time changes nothing.
func normalise(config *kserve.ModelConfig) {
	if config.VersionPolicy == nil {
		config.VersionPolicy = &kserve.ModelVersionPolicy{
			PolicyChoice: &kserve.ModelVersionPolicy_Latest_{Latest: &kserve.ModelVersionPolicy_Latest{NumVersions: 1}},
		}
	}
	whole := func(preferred *[]int32) {
		if len(*preferred) == 0 && config.MaxBatchSize > 0 {
			*preferred = []int32{config.MaxBatchSize}
		}
	}
	if batching := config.GetDynamicBatching(); batching != nil {
		whole(&batching.PreferredBatchSize)
	}
	if sequence := config.GetSequenceBatching(); sequence != nil {
		if sequence.MaxSequenceIdleMicroseconds == 0 {
			sequence.MaxSequenceIdleMicroseconds = defaultSequenceIdle
		}
		if oldest := sequence.GetOldest(); oldest != nil {
			whole(&oldest.PreferredBatchSize)
		}
	}
	if config.Platform == PlatformEnsemble {
		return
	}
	if config.Optimization == nil {
		config.Optimization = &kserve.ModelOptimizationPolicy{}
	}
	for _, memory := range []**kserve.ModelOptimizationPolicy_PinnedMemoryBuffer{
		&config.Optimization.InputPinnedMemory, &config.Optimization.OutputPinnedMemory,
	} {
		if *memory == nil {
			*memory = &kserve.ModelOptimizationPolicy_PinnedMemoryBuffer{Enable: true}
		}
	}
}

// normaliseGroups decides where instances are placed. A second time changes
// nothing.
func normaliseGroups(config *kserve.ModelConfig, gpus []int32) {
	if config.Platform == PlatformEnsemble {
		return
	}
	if len(config.InstanceGroup) == 0 {
		config.InstanceGroup = []*kserve.ModelInstanceGroup{{Name: config.Name}}
	}
	for i, group := range config.InstanceGroup {
		if group.Name == "" {
			group.Name = fmt.Sprintf("%s_%d", config.Name, i)
		}
		if group.Kind == kserve.ModelInstanceGroup_KIND_AUTO {
			group.Kind = kserve.ModelInstanceGroup_KIND_GPU
			if len(gpus) == 0 || slices.ContainsFunc(group.Gpus, func(id int32) bool { return !slices.Contains(gpus, id) }) {
				group.Kind = kserve.ModelInstanceGroup_KIND_CPU
			}
		}
		if group.Count < 1 {
			group.Count = 1
			if group.Kind == kserve.ModelInstanceGroup_KIND_CPU && (config.Backend == "tensorflow" || config.Backend == "onnxruntime") {
				group.Count = 2
			}
		}
		if group.Kind == kserve.ModelInstanceGroup_KIND_GPU && len(group.Gpus) == 0 {
			group.Gpus = slices.Clone(gpus)
		}
	}
}
