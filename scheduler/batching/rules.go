package batching

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/kserve"
)

// Rules says how a scheduler.Batcher joins requests to batches. It does not change
// once a Batcher has it.
type Rules struct {
	// MaxSize bounds the summed batch sizes of a batch's requests; below 2 each
	// request is executed by itself.
	MaxSize int64
	// Preferred are sizes for which a batch need not wait, ascending; default
	// MaxSize alone.
	Preferred []int64
	// MaxDelay is how long a request waits for others that make its batch one of a
	// preferred size, while an instance is idle.
	MaxDelay time.Duration
	// PreserveOrder has the responses of clients' requests leave in the order in
	// which the requests were given to instances. BLS requests do not take part: one could
	// wait for the response of its own caller.
	PreserveOrder bool
	// Levels is how many priorities there are, 1 the highest; 0: all are equal. A
	// request that names no level, or an unknown one, has DefaultLevel.
	Levels, DefaultLevel uint64
	// Policy is what happens to those that wait, Policies that of single levels;
	// nil: nothing.
	Policy   *kserve.ModelQueuePolicy
	Policies map[uint64]*kserve.ModelQueuePolicy
	// Alike tells which requests can be in one batch; nil: all.
	Alike *Alike
	// Strategy decides beyond that; nil: it does not.
	Strategy Strategy
	// StartWith holds everything back until so many requests wait for the first
	// time: for tests that need to know what is batched.
	StartWith int
}

// NewRules returns what a normalised config asks for, nil without dynamic_batching.
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
		b.Preferred = append(b.Preferred, int64(size))
	}
	slices.Sort(b.Preferred)
	return b
}

// maxLevels bounds how many priorities a config can have queues for.
const maxLevels = 1 << 16

// LevelPolicies returns the policy of each level, the highest first; there is one at
// least.
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

// LevelOf returns the level of a request of a priority, an index of LevelPolicies.
func (b *Rules) LevelOf(priority uint64) int {
	if b.Levels == 0 {
		return 0
	}
	if priority == 0 || priority > b.Levels {
		priority = b.DefaultLevel
	}
	return int(min(max(priority, 1), b.Levels, maxLevels)) - 1
}
