package statistics

import (
	"sort"
	"strconv"

	"github.com/nereid-serving/nereid/kserve"
)

// duration is how often something was done and how long all of it took.
type duration struct{ count, ns uint64 }

func (d *duration) add(ns int64) {
	d.count++
	d.ns += uint64(max(ns, 0))
}

func (d *duration) proto() *kserve.StatisticDuration {
	return &kserve.StatisticDuration{Count: d.count, Ns: d.ns}
}

// batchStatistics are the executions with one total batch size.
type batchStatistics struct{ input, infer, output duration }

// Proto returns the present numbers as the protocol shows them.
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
	sizes := make([]int64, 0, len(s.batches))
	for size := range s.batches {
		sizes = append(sizes, size)
	}
	sort.Slice(sizes, func(i, j int) bool { return sizes[i] < sizes[j] })
	for _, size := range sizes {
		b := s.batches[size]
		m.BatchStats = append(m.BatchStats, &kserve.InferBatchStatistics{
			BatchSize: uint64(size), ComputeInput: b.input.proto(), ComputeInfer: b.infer.proto(), ComputeOutput: b.output.proto(),
		})
	}
	m.ResponseStats = s.responses.proto()
	return m
}
