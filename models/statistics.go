package models

import (
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/scheduler"
)

// statistics counts what one loaded version does, since it was loaded. It is
// the scheduler's Observer.
type statistics struct {
	name    string
	version int64
	metrics *metrics.Model

	mu            sync.Mutex
	lastInference int64 // ms since 1970
	inferences    uint64
	executions    uint64
	success, fail duration
	queue         duration
	input, infer  duration
	output        duration
	hit, miss     duration // of the response cache
	batches       map[int64]*batchStatistics
}

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

func newStatistics(name string, version int64, m *metrics.Model) *statistics {
	return &statistics{name: name, version: version, metrics: m, batches: make(map[int64]*batchStatistics)}
}

var _ scheduler.Observer = (*statistics)(nil)

// Pending implements scheduler.Observer.
func (s *statistics) Pending(change int) { s.metrics.Pending(change) }

// Executed implements scheduler.Observer.
func (s *statistics) Executed(e *scheduler.Execution) {
	r := &e.Report
	input, infer, output := r.ComputeStart-r.Start, r.ComputeEnd-r.ComputeStart, r.End-r.ComputeEnd
	total := e.Padding
	s.mu.Lock()
	failed := r.Failed
	for i := range e.Requests {
		t := &e.Requests[i]
		size := max(t.BatchSize, 1)
		total += size
		if r.Err != nil || next(&failed, i) {
			s.fail.add(r.End - t.Start)
			continue
		}
		s.success.add(r.End - t.Start)
		s.queue.add(r.Start - t.Queued)
		s.input.add(input)
		s.infer.add(infer)
		s.output.add(output)
		s.inferences += uint64(size)
	}
	if r.Executed {
		s.executions++
		s.lastInference = time.Now().UnixMilli()
		b := s.batches[total]
		if b == nil {
			b = &batchStatistics{}
			s.batches[total] = b
		}
		b.input.add(input)
		b.infer.add(infer)
		b.output.add(output)
	}
	s.mu.Unlock()

	failed = r.Failed
	for i := range e.Requests {
		t := &e.Requests[i]
		if r.Err != nil || next(&failed, i) {
			s.metrics.Failure(metrics.ReasonBackend)
			continue
		}
		s.metrics.Success(max(t.BatchSize, 1), metrics.Durations{
			Total: r.End - t.Start, Queue: r.Start - t.Queued, Input: input, Infer: infer, Output: output,
		})
	}
	if r.Executed {
		s.metrics.Execution()
	}
}

// next reports whether i is the first of positions that ascend, and takes it out.
func next(positions *[]int, i int) bool {
	if len(*positions) == 0 || (*positions)[0] != i {
		return false
	}
	*positions = (*positions)[1:]
	return true
}

// cacheHit counts a request that the cache has answered. Total is how long that
// took, lookup how long the cache did, both in ns. It has not been queued.
func (s *statistics) cacheHit(total, lookup int64) {
	s.mu.Lock()
	s.success.add(total)
	s.queue.add(0)
	s.hit.add(lookup)
	s.mu.Unlock()
	s.metrics.CacheHit(total, 0, lookup)
}

// cacheMiss counts a request that the cache could not answer. Took is how long it
// took for that, and to store the response, in ns: the time which the scheduler
// has not seen.
func (s *statistics) cacheMiss(took int64) {
	s.mu.Lock()
	s.miss.add(took)
	s.success.ns += uint64(max(took, 0))
	s.mu.Unlock()
	s.metrics.CacheMiss(took)
}

// reasons maps the scheduler's reasons to the metric's labels.
var reasons = [...]metrics.Reason{
	scheduler.Rejected:       metrics.ReasonRejected,
	scheduler.Canceled:       metrics.ReasonCanceled,
	scheduler.BackendFailure: metrics.ReasonBackend,
	scheduler.OtherFailure:   metrics.ReasonOther,
}

// Failed implements scheduler.Observer.
func (s *statistics) Failed(reason scheduler.Reason, start int64) {
	s.mu.Lock()
	s.fail.add(backend.Now() - start)
	s.mu.Unlock()
	s.metrics.Failure(reasons[reason])
}

// proto returns the present numbers as the protocol shows them.
func (s *statistics) proto() *kserve.ModelStatistics {
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
	return m
}
