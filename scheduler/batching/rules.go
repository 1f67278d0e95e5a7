package batching

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/kserve"
)

// Rules says how a scheduler.Batcher forms batches. It does not change once a Batcher has it.
type Rules struct {
	// MaxSize bounds the summed batch sizes of a batch's requests. Below 2 each request is executed
	// by itself.
	MaxSize int64
	// Preferred are the sizes at which a batch need not wait, ascending; default MaxSize.
	Preferred []int64
	// MaxDelay is how long a batch waits for a preferred size while an instance is idle.
	MaxDelay time.Duration
	// PreserveOrder sends the responses of clients' requests in the order in which the requests
	// were given to instances. BLS requests are exempt: one could wait for the response of its own
	// caller.
	PreserveOrder bool
	// Levels is the number of priorities, 1 the highest; 0: all requests are equal. A request with
	// no level, or an unknown one, has DefaultLevel.
	Levels, DefaultLevel uint64
	// Policy applies to all levels without an entry in Policies; nil: no limits.
	Policy   *kserve.ModelQueuePolicy
	Policies map[uint64]*kserve.ModelQueuePolicy
	// Alike decides which requests fit into one batch; nil: all.
	Alike *Alike
	// Strategy may exclude further requests; nil: none.
	Strategy Strategy
	// StartWith delays all executions until this number of requests waits for the first time, for
	// tests that depend on the batches.
	StartWith int
}

// NewRules returns the rules of a normalised config, nil without dynamic_batching.
func NewRules(config *kserve.ModelConfig) *Rules {
	dynamic := config.GetDynamicBatching()
	if dynamic == nil {
		return nil
	}
	b := &Rules{
		MaxSize: int64(config.GetMaxBatchSize()), MaxDelay: Micros(dynamic.GetMaxQueueDelayMicroseconds()),
		PreserveOrder: dynamic.GetPreserveOrdering(),
		Levels:        dynamic.GetPriorityLevels(), DefaultLevel: dynamic.GetDefaultPriorityLevel(),
		Policy: dynamic.GetDefaultQueuePolicy(), Policies: dynamic.GetPriorityQueuePolicy(), Alike: NewAlike(config),
	}
	for _, size := range dynamic.GetPreferredBatchSize() {
		b.Preferred = append(b.Preferred, int64(size)) // bound: the config
	}
	slices.Sort(b.Preferred)
	return b
}

// maxLevels bounds the number of queues.
const maxLevels = 1 << 16

// LevelPolicies returns the policy of each level, the highest first. There is at least one.
func (b *Rules) LevelPolicies() []Policy {
	list := make([]Policy, max(1, min(b.Levels, maxLevels)))
	for i := range list {
		p := b.Policy
		if own, has := b.Policies[uint64(i)+1]; has && b.Levels > 0 {
			p = own
		}
		list[i] = newPolicy(p)
	}
	return list
}

// LevelOf returns the level of a priority, as an index into LevelPolicies.
func (b *Rules) LevelOf(priority uint64) int {
	if b.Levels == 0 {
		return 0
	}
	if priority == 0 || priority > b.Levels {
		priority = b.DefaultLevel
	}
	return int(min(max(priority, 1), b.Levels, maxLevels)) - 1
}
