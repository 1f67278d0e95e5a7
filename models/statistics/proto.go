package statistics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nereid-serving/nereid/kserve"
)

// duration is the number of times something was done and the total time.
type duration struct{ count, ns uint64 }

func (d *duration) add(ns int64) {
	d.count++
	d.ns += uint64(max(ns, 0))
}

func (d *duration) proto() *kserve.StatisticDuration {
	return &kserve.StatisticDuration{Count: d.count, Ns: d.ns}
}

// mostBatchSizes bounds the batch sizes that are counted. A model without large tensors may be sent
// more; executions with further sizes count as executions only.
const mostBatchSizes = 10_000

// batchStatistics are the executions with one total batch size.
type batchStatistics struct{ input, infer, output duration }

// Proto returns the current numbers as the protocol shows them.
func (s *Version) Proto() *kserve.ModelStatistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &kserve.ModelStatistics{
		Name:           s.name,
		Version:        strconv.FormatInt(s.version, 10),
		LastInference:  uint64(s.lastInference),
		InferenceCount: s.inferences,
		ExecutionCount: s.executions,
		InferenceStats: &kserve.InferStatistics{
			Success: s.success.proto(), Fail: s.fail.proto(), Queue: s.queue.proto(), ComputeInput: s.input.proto(),
			ComputeInfer: s.infer.proto(), ComputeOutput: s.output.proto(), CacheHit: s.hit.proto(), CacheMiss: s.miss.proto(),
		},
	}
	for _, size := range slices.Sorted(maps.Keys(s.batches)) { // bound: mostBatchSizes
		b := s.batches[size]
		m.BatchStats = append(m.BatchStats, &kserve.InferBatchStatistics{ // bound: mostBatchSizes
			BatchSize: uint64(size), ComputeInput: b.input.proto(), ComputeInfer: b.infer.proto(), ComputeOutput: b.output.proto(),
		})
	}
	m.ResponseStats = s.responses.proto()
	return m
}
