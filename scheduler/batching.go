package scheduler

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/kserve"
)

// Batching says how a Batcher joins requests to batches.
type Batching struct {
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
	// which the requests were given to instances. What models call does not take
	// part: a call could wait for the response of its own caller.
	PreserveOrder bool
	// Levels is how many priorities there are, 1 the highest; 0: all are equal. A
	// request that names none, or one that is not there, has DefaultLevel.
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

// NewBatching is what a normalised config asks for, nil without
// dynamic_batching.
func NewBatching(config *kserve.ModelConfig) *Batching {
	dynamic := config.GetDynamicBatching()
	if dynamic == nil {
		return nil
	}
	b := &Batching{
		MaxSize: int64(config.GetMaxBatchSize()), MaxDelay: micros(dynamic.GetMaxQueueDelayMicroseconds()),
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

// levels are the policies of the levels; there is one at least.
func (b *Batching) levels() []policy {
	list := make([]policy, max(1, min(b.Levels, maxLevels)))
	for i := range list {
		p := b.Policy
		if own, has := b.Policies[uint64(i)+1]; has && b.Levels > 0 {
			p = own
		}
		list[i] = newPolicy(p)
	}
	return list
}

// levelOf is the level of a request of a priority, from 0.
func (b *Batching) levelOf(priority uint64) int {
	if b.Levels == 0 {
		return 0
	}
	if priority == 0 || priority > b.Levels {
		priority = b.DefaultLevel
	}
	return int(min(max(priority, 1), b.Levels, maxLevels)) - 1
}
