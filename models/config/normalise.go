package config

import (
	"fmt"
	"slices"

	"github.com/nereid-serving/nereid/kserve"
)

// defaultSequenceIdle is the default idle time of a sequence, in microseconds.
const defaultSequenceIdle = 1_000_000

// normalise fills in the defaults that the configuration's JSON form shows. It is idempotent.
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

// normaliseGroups completes the instance groups. preferred are the groups of the model's backend,
// for fields that the configuration leaves open. It is idempotent.
func normaliseGroups(config *kserve.ModelConfig, gpus []int32, preferred ...*kserve.ModelInstanceGroup) {
	if config.Platform == PlatformEnsemble {
		return
	}
	if len(config.InstanceGroup) == 0 {
		config.InstanceGroup = []*kserve.ModelInstanceGroup{firstAcceptable(config.Name, gpus, preferred)}
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
		for _, p := range preferred {
			if p.Kind != group.Kind {
				continue
			}
			if p.Kind == kserve.ModelInstanceGroup_KIND_GPU && len(group.Gpus) == 0 {
				group.Gpus = usable(p.Gpus, gpus)
			}
			if group.Count < 1 {
				group.Count = p.Count
			}
		}
		if group.Count < 1 {
			group.Count = 1
			if group.Kind == kserve.ModelInstanceGroup_KIND_CPU && (config.Backend == "tensorflow" || config.Backend == "onnxruntime") {
				group.Count = 2
			}
		}
		if group.Kind == kserve.ModelInstanceGroup_KIND_GPU && len(group.Gpus) == 0 {
			group.Gpus = slices.Clone(gpus) // bound: the GPUs
		}
	}
}

// firstAcceptable makes the group of a model without groups: the first preferred one that can be
// placed, or any.
func firstAcceptable(name string, gpus []int32, preferred []*kserve.ModelInstanceGroup) *kserve.ModelInstanceGroup {
	for _, p := range preferred {
		if p.Kind != kserve.ModelInstanceGroup_KIND_GPU || len(gpus) > 0 {
			return &kserve.ModelInstanceGroup{Name: name, Kind: p.Kind, Count: p.Count, Gpus: usable(p.Gpus, gpus)}
		}
	}
	return &kserve.ModelInstanceGroup{Name: name}
}

// usable returns the ids that are among gpus.
func usable(ids, gpus []int32) (list []int32) {
	for _, id := range ids {
		if slices.Contains(gpus, id) {
			list = append(list, id) // bound: the groups that a backend prefers
		}
	}
	return list
}
