package statistics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/scheduler"
)

// Version counts the work of one loaded version since its load. It is the scheduler's Observer.
type Version struct {
	// Metrics are the version's; the registry tells them of loads and of the end.
	Metrics *metrics.Model

	// uuid names a GPU by its number; nil: no GPUs.
	uuid func(gpu int32) string
	// gpus has the metrics for each GPU, by its number. The map is replaced, never changed:
	// executions read it without a lock.
	gpus atomic.Pointer[map[int32]*metrics.Model]

	name    string
	version int64

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

	responses *Responses
}

// New makes the counts of a version that is being loaded. responses are the reports of its
// instances.
func New(name string, version int64, m *metrics.Model, responses *Responses) *Version {
	return &Version{name: name, version: version, Metrics: m, batches: make(map[int64]*batchStatistics), responses: responses}
}

// CountGPUs makes executions on these GPUs count by their UUIDs, which uuid returns for a number.
// Others follow when the first batch is executed there. It is called before any execution.
func (s *Version) CountGPUs(gpus []int32, uuid func(gpu int32) string) {
	s.uuid = uuid
	for _, gpu := range gpus {
		s.addGPU(gpu)
	}
}

// executedOn returns the metrics of an instance; gpu is that of its Report.
func (s *Version) executedOn(gpu int32) *metrics.Model {
	if gpu == 0 || s.uuid == nil {
		return s.Metrics
	}
	if perGPU := s.gpus.Load(); perGPU != nil {
		if m := (*perGPU)[gpu-1]; m != nil {
			return m
		}
	}
	return s.addGPU(gpu - 1)
}

// addGPU adds the metrics of a GPU.
func (s *Version) addGPU(gpu int32) *metrics.Model {
	m := s.Metrics.OnGPU(s.uuid(gpu))
	for {
		old := s.gpus.Load()
		perGPU := map[int32]*metrics.Model{gpu: m}
		if old != nil {
			maps.Copy(perGPU, *old) // bound: the GPUs
		}
		if s.gpus.CompareAndSwap(old, &perGPU) {
			return m
		}
	}
}

var _ scheduler.Observer = (*Version)(nil)

// Pending implements scheduler.Observer.
func (s *Version) Pending(change int) { s.Metrics.Pending(change) }

// Executed implements scheduler.Observer.
func (s *Version) Executed(e *scheduler.Execution) {
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
		if b := s.batchesOfLocked(total); b != nil {
			b.input.add(input)
			b.infer.add(infer)
			b.output.add(output)
		}
	}
	s.mu.Unlock()

	failed = r.Failed
	reason := failureOf(r)
	counted := s.executedOn(r.GPU)
	for i := range e.Requests {
		t := &e.Requests[i]
		if r.Err != nil || next(&failed, i) {
			counted.Failure(reason)
			continue
		}
		counted.Success(max(t.BatchSize, 1), metrics.Durations{
			Total: r.End - t.Start, Queue: r.Start - t.Queued, Input: input, Infer: infer, Output: output,
		})
	}
	if r.Executed {
		counted.Execution()
	}
}

// batchesOfLocked returns the counts of a batch size; nil beyond mostBatchSizes.
func (s *Version) batchesOfLocked(size int64) *batchStatistics {
	b := s.batches[size]
	if b == nil && len(s.batches) < mostBatchSizes {
		b = &batchStatistics{}
		s.batches[size] = b // bound: mostBatchSizes
	}
	return b
}

// failureOf returns the reason of a batch's failures. A batch for which the server lacks memory
// never reaches its backend.
func failureOf(r *backend.Report) metrics.Reason {
	if !r.Executed && r.Err != nil && infer.AsError(r.Err).OutOfMemory {
		return metrics.ReasonOther
	}
	return metrics.ReasonBackend
}

// next reports whether i is the first of ascending positions, and removes it.
func next(positions *[]int, i int) bool {
	if len(*positions) == 0 || (*positions)[0] != i {
		return false
	}
	*positions = (*positions)[1:]
	return true
}

// CacheHit counts a request that the cache has answered. total is the whole time, lookup the
// cache's part, both in ns. The request was not queued.
func (s *Version) CacheHit(total, lookup int64) {
	s.mu.Lock()
	s.success.add(total)
	s.queue.add(0)
	s.hit.add(lookup)
	s.mu.Unlock()
	s.Metrics.CacheHit(total, 0, lookup)
}

// CacheMiss counts a request that the cache could not answer. took is the time, in ns, of the
// lookup and of storing the response, which the scheduler has not seen.
func (s *Version) CacheMiss(took int64) {
	s.mu.Lock()
	s.miss.add(took)
	s.success.ns += uint64(max(took, 0))
	s.mu.Unlock()
	s.Metrics.CacheMiss(took)
}

// reasons maps the scheduler's reasons to the metric's labels.
var reasons = [...]metrics.Reason{
	scheduler.Rejected:       metrics.ReasonRejected,
	scheduler.Canceled:       metrics.ReasonCanceled,
	scheduler.BackendFailure: metrics.ReasonBackend,
	scheduler.OtherFailure:   metrics.ReasonOther,
}

// Failed implements scheduler.Observer.
func (s *Version) Failed(reason scheduler.Reason, start int64) {
	s.mu.Lock()
	s.fail.add(backend.Now() - start)
	s.mu.Unlock()
	s.Metrics.Failure(reasons[reason])
}
