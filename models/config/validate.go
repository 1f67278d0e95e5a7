package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// platformsOf returns the platforms of a backend that accepts no other.
func platformsOf(backend string) (platforms []string, strict bool) {
	for _, f := range frameworks {
		if f.backend == backend && len(f.platforms) > 0 {
			return f.platforms, true
		}
	}
	return nil, false
}

// validate checks a normalised configuration except its inputs, outputs and instance groups, in
// Triton's order.
func validate(config *kserve.ModelConfig) error {
	name := config.Name
	if name == "" {
		return invalid("model configuration must specify 'name'")
	}
	ensemble := config.Platform == PlatformEnsemble
	switch {
	case config.Backend == "" && !ensemble:
		return invalid("unexpected platform type '%s' for %s", config.Platform, name)
	case config.Backend != "" && ensemble:
		return invalid("Ensemble model '%s' must have platform type 'ensemble' and empty backend type", name)
	}
	if platforms, strict := platformsOf(config.Backend); strict && !slices.Contains(platforms, config.Platform) {
		return invalid("unexpected 'platform' and 'backend' pair, got:%s, %s", config.Platform, config.Backend)
	}
	if config.MaxBatchSize < 0 {
		return invalid("'max_batch_size' must be non-negative value for %s", name)
	}
	if config.VersionPolicy == nil {
		return invalid("must specify 'version policy' for %s", name)
	}
	if batching := config.GetDynamicBatching(); batching != nil {
		if err := validateDynamicBatching(config, batching); err != nil {
			return err
		}
	}
	if sequence := config.GetSequenceBatching(); sequence != nil {
		if err := validateSequenceBatching(config, sequence); err != nil {
			return err
		}
	}
	if ensembling := config.GetEnsembleScheduling(); ensembling != nil {
		if err := validateEnsemble(config, ensembling); err != nil {
			return err
		}
	} else if ensemble {
		return invalid("ensemble scheduling must be set for ensemble %s whose platform is ensemble", name)
	}
	if config.GetModelTransactionPolicy().GetDecoupled() && config.GetResponseCache().GetEnable() {
		return invalid("Response Cache does not currently support model %s with 'decoupled' transaction policy. Please disable the response cache.", name)
	}
	if n, most := len(config.InstanceGroup), min(maxGroups, maxGroupNames/len(name)); n > most {
		return invalid("%s has %d instance groups, want %d at most", name, n, most)
	}
	for _, group := range config.InstanceGroup {
		if n := len(group.Name); n > budget.MaxName { // each of its instances has a name with this one
			return invalid("an instance group of %s has a name of %d bytes, want %d at most", name, n, budget.MaxName)
		}
		if n := len(group.GetRateLimiter().GetResources()); n > maxResources {
			return invalid("an instance group of %s has %d resources of the rate limiter, want %d at most", name, n, maxResources)
		}
	}
	if err := validateWarmup(config); err != nil {
		return err
	}
	return validateMetrics(config)
}

// Limits of the instance groups of a model.
const (
	maxGroups     = 4096
	maxGroupNames = 1 << 20 // bytes, if they have no names: default names begin with the model's
	maxResources  = 256     // of a group; each instance has a copy of them
)

// maxWarmupRequests is how many requests the samples of a model may make of each instance.
const maxWarmupRequests = 1_000_000

// validateWarmup refuses samples that would keep a load for hours.
func validateWarmup(config *kserve.ModelConfig) error {
	requests := uint64(0)
	for _, sample := range config.ModelWarmup {
		requests += uint64(sample.BatchSize) * uint64(max(sample.Count, 1))
		if requests > maxWarmupRequests {
			return invalid("model_warmup of %s has %d requests up to sample '%s' ('count' times 'batch_size'), want %d at most", config.Name, requests, sample.Name, maxWarmupRequests)
		}
	}
	return nil
}

func validateDynamicBatching(config *kserve.ModelConfig, batching *kserve.ModelDynamicBatching) error {
	name := config.Name
	for _, size := range batching.PreferredBatchSize {
		switch {
		case size <= 0:
			return invalid("dynamic batching preferred size must be positive for %s", name)
		case size > config.MaxBatchSize:
			return invalid("dynamic batching preferred size must be <= max batch size for %s", name)
		}
	}
	if levels := batching.PriorityLevels; levels != 0 {
		if level := batching.DefaultPriorityLevel; level == 0 || level > levels {
			return invalid("default priority level must be in range [1, %d] for %s", levels, name)
		}
		for level := range batching.PriorityQueuePolicy {
			if level == 0 || level > levels {
				return invalid("priority queue policy must have priority level in range [1, %d] for %s", levels, name)
			}
		}
	}
	if !batching.PreserveOrdering {
		return nil
	}
	if batching.PriorityLevels > 1 {
		return invalid("Only one priority level is allowed when 'preserve_ordering' is true for %s", name)
	}
	delays := func(p *kserve.ModelQueuePolicy) bool {
		return p.GetDefaultTimeoutMicroseconds() != 0 && p.GetTimeoutAction() == kserve.ModelQueuePolicy_DELAY
	}
	refused := delays(batching.DefaultQueuePolicy)
	for _, policy := range batching.PriorityQueuePolicy {
		refused = refused || delays(policy)
	}
	if refused {
		return invalid("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s", name)
	}
	return nil
}

func validateMetrics(config *kserve.ModelConfig) error {
	for _, control := range config.GetModelMetrics().GetMetricControl() {
		switch {
		case control.MetricIdentifier == nil:
			return invalid("metric control must specify 'metric_identifier'")
		case control.MetricIdentifier.Family == "":
			return invalid("metric identifier must specify non-empty 'family'")
		case control.GetHistogramOptions() == nil:
			return invalid("metric control must specify 'histogram_options'")
		case len(control.GetHistogramOptions().Buckets) == 0:
			return invalid("histogram options must specify non-empty 'buckets'")
		}
	}
	return nil
}

// firstResponse is the only metric family whose buckets a configuration may set.
const firstResponse = "nv_inference_first_response_histogram_ms"

// FirstResponseBuckets returns the configured bounds, in milliseconds, of the histogram of first
// responses, or nil.
func FirstResponseBuckets(config *kserve.ModelConfig) (buckets []float64) {
	for _, control := range config.GetModelMetrics().GetMetricControl() {
		if control.GetMetricIdentifier().GetFamily() == firstResponse {
			buckets = control.GetHistogramOptions().GetBuckets()
		}
	}
	return buckets
}

// MetricWarnings returns a log line for each metric whose buckets a configuration sets in vain.
func MetricWarnings(config *kserve.ModelConfig) (warnings []string) {
	for _, control := range config.GetModelMetrics().GetMetricControl() {
		if family := control.GetMetricIdentifier().GetFamily(); family != firstResponse {
			warnings = append(warnings, fmt.Sprintf("model '%s' sets the buckets of metric family '%s', which has no buckets that a model can set", config.GetName(), family)) // bound: the config
		}
	}
	return warnings
}

// CheckGroups checks the instance groups of a normalised configuration against the GPUs that may be
// used. The error is an *infer.Error for clients.
func (r Rules) CheckGroups(config *kserve.ModelConfig) error {
	if config.Platform == PlatformEnsemble {
		return nil // they are refused with the ensemble's other fields
	}
	if len(config.InstanceGroup) == 0 {
		return invalid("must specify one or more 'instance group's for %s", config.Name)
	}
	for _, group := range config.InstanceGroup {
		refuse := func(format string, args ...any) error {
			return invalid("instance group %s of model %s %s", group.Name, config.Name, fmt.Sprintf(format, args...))
		}
		switch group.Kind {
		case kserve.ModelInstanceGroup_KIND_MODEL, kserve.ModelInstanceGroup_KIND_CPU:
			if len(group.Gpus) > 0 {
				return refuse("has kind %s but specifies one or more GPUs", group.Kind)
			}
		case kserve.ModelInstanceGroup_KIND_GPU:
			if len(group.Gpus) == 0 {
				return refuse("has kind KIND_GPU but no GPUs are available")
			}
			for _, id := range group.Gpus {
				if !slices.Contains(r.GPUs, id) {
					return refuse("specifies invalid or unsupported gpu id %d. GPUs with at least the minimum required CUDA compute compatibility of %f are: %s", id, cmp.Or(r.MinCapability, 6), join(r.GPUs))
				}
			}
		default:
			return infer.Errorf(infer.Internal, "instance group %s of model %s has unexpected kind KIND_AUTO", group.Name, config.Name)
		}
		if len(group.Profile) > 0 && config.Platform != platformTensorRT {
			return refuse("and platform %sspecifies profile field which is only supported for TensorRT models", config.Platform)
		}
	}
	return nil
}

// bound: the GPUs
func join(numbers []int32) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(texts, ", ")
}

func invalid(format string, args ...any) error {
	return infer.Errorf(infer.InvalidArg, format, args...)
}
