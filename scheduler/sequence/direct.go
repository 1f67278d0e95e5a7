package sequence

import (
	"context"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// directLane is the state of an instance with the Direct strategy.
type directLane struct {
	executes *slotBatch // nil: it is idle
	forming  bool       // formLocked is running
	refuses  bool       // it has refused a batch and is about to be lost
	timer    *time.Timer
	zeros    zeros // for padding, while it is not idle
}

// slotBatch is a batch of one request per slot, in the order of the slots. Empty slots below the
// last used one are padded.
type slotBatch struct {
	lane      *lane
	batch     backend.Batch
	episodes  []*episode // bound: the slots
	positions []int      // indices of episodes among the tasks; bound: the slots
	execution scheduler.Execution
	zeros     infer.Memory // memory of the padding; nil on the heap
	denied    error        // error of the allocation of padding
	// open counts the responses that the next batch waits for, because they carry the states that
	// it begins with.
	open     int
	returned bool // by the instance
}

// formLocked forms the next batch of an idle instance, if one is due.
func (s *Batcher) formLocked(l *lane, then *followUp) {
	if !l.AvailableLocked() || l.executes != nil || l.forming || l.refuses || s.held {
		return
	}
	l.forming = true
	defer func() { l.forming = false }()
	ready, highest := 0, 0
	var oldest *episode // the batch is formed around it, so that it does not wait forever
	for i, at := range l.slots {
		if r := s.nextLocked(at, then); r != nil {
			ready++
			highest = i
			if oldest == nil || r.timing.Queued < oldest.timing.Queued {
				oldest = r
			}
		}
	}
	if ready == 0 {
		return
	}
	if s.delay > 0 && s.fill > 0 {
		age := backend.Now() - oldest.timing.Queued
		if age <= s.delay && float32(ready)/float32(max(s.config.MaxBatch, 1)) < s.fill {
			l.waitLocked(s, time.Duration(s.delay-age)+1)
			return
		}
	}
	b := &slotBatch{lane: l}
	l.executes = b
	// bound: the slots
	b.batch = backend.Batch{Tasks: make([]*backend.Task, 0, highest+1), Done: b.executed}
	for _, at := range l.slots[:highest+1] {
		var r *episode
		if at.seq != nil && at.seq.First != nil && s.config.Alike.Equal(oldest.own, at.seq.First.own) {
			r = s.takeLocked(at, then)
			b.add(r, &r.task)
			b.execution.Requests = append(b.execution.Requests, r.timing) // bound: the slots
		} else {
			b.add(nil, nil)
		}
	}
	b.denied = s.pad(b, oldest.own)
	if s.states != nil && !s.config.Decoupled {
		b.open = len(b.episodes)
	}
	then.batches = append(then.batches, b)
}

func (b *slotBatch) add(r *episode, task *backend.Task) {
	if r != nil {
		r.batch = b
		b.episodes = append(b.episodes, r)
		b.positions = append(b.positions, len(b.batch.Tasks))
	}
	b.batch.Tasks = append(b.batch.Tasks, task) // bound: the slots
}

// waitLocked calls formLocked later.
func (l *lane) waitLocked(s *Batcher, wait time.Duration) {
	if l.timer != nil {
		l.timer.Reset(wait)
		return
	}
	l.timer = panics.AfterFunc(s.config.Log, panics.Scheduler, wait, func() {
		var then followUp
		defer func() { then.run(s) }()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.formLocked(l, &then)
	}, nil)
}

// pad fills the empty slots of a batch. Padding has the shapes of a request in the batch, contains
// zeros, and is not READY. All padding shares the same zeros: if a model writes into one empty
// slot, it may read the change in another.
func (s *Batcher) pad(b *slotBatch, like *infer.Request) error {
	if len(b.episodes) == len(b.batch.Tasks) {
		return nil
	}
	most := 0
	for i := range like.Inputs {
		most = max(most, paddingSize(&like.Inputs[i]))
	}
	z := &b.lane.zeros
	if err := z.grow(most, s.config.Allocate); err != nil {
		return err
	}
	if z.memory != nil {
		z.memory.Retain()
		b.zeros = z.memory
	}
	req := &infer.Request{Model: like.Model, Version: like.Version, BatchSize: like.BatchSize, Padding: true}
	// bound: the inputs, controls and states of the config
	req.Inputs = make([]infer.Tensor, len(like.Inputs), len(like.Inputs)+s.extra())
	for i := range like.Inputs {
		in := &like.Inputs[i]
		req.Inputs[i] = infer.Tensor{Name: in.Name, DataType: in.DataType, Shape: in.Shape, Data: z.data[:paddingSize(in)], Memory: z.memory}
	}
	req.Inputs = s.controls.append(req.Inputs, 0, false, infer.CorrelationID{}, nil)
	if s.states != nil {
		req.Inputs = s.states.append(req.Inputs, nil)
	}
	tasks := make([]backend.Task, len(b.batch.Tasks)-len(b.episodes)) // bound: the slots
	b.execution.Padding = int64(len(tasks))
	for i, task := range b.batch.Tasks {
		if task == nil {
			tasks[0] = backend.Task{Context: context.Background(), Request: req, Send: (*infer.Response).Release}
			b.batch.Tasks[i], tasks = &tasks[0], tasks[1:]
		}
	}
	return nil
}

// executed is the Done of the batch: it counts the execution and gives the instance its next batch.
func (b *slotBatch) executed(_ *backend.Batch, report backend.Report) {
	s := b.episodes[0].owner
	handover.Returned(&b.batch, &report)
	var then followUp
	if b.zeros != nil {
		b.zeros.Release()
		b.zeros = nil
	}
	if report.Refused {
		s.mu.Lock()
		s.refusedLocked(b, report.Withdrawn, &then)
		s.mu.Unlock()
		then.run(s)
		return
	}
	again := report.Rescheduled
	b.execution.Report = report
	b.execution.Report.Failed = b.failed(report.Failed)
	s.config.Observer.Executed(&b.execution)
	for _, r := range b.episodes {
		scheduler.Account(r.task.Request, &report)
	}
	s.mu.Lock()
	b.returned = true
	for _, r := range b.episodes {
		s.releasedLocked(r, slices.Contains(again, &r.task), &then)
	}
	s.nextBatchLocked(b, &then)
	s.mu.Unlock()
	then.run(s)
}

// failed converts indices of tasks to indices of episodes.
func (b *slotBatch) failed(tasks []int) []int {
	if len(tasks) == 0 || len(b.episodes) == len(b.batch.Tasks) {
		return tasks
	}
	var list []int // bound: the slots
	for i, at := range b.positions {
		if slices.Contains(tasks, at) {
			list = append(list, i)
		}
	}
	return list
}

// nextBatchLocked forms the next batch of an instance when the last one has returned and its states
// have arrived.
func (s *Batcher) nextBatchLocked(b *slotBatch, then *followUp) {
	l := b.lane
	if !b.returned || b.open > 0 || l.executes != b {
		return
	}
	l.executes = nil
	s.formLocked(l, then)
	l.restLocked()
	s.drainLocked(l, then)
}

// answeredLocked records that an episode of a batch has its last response.
func (s *Batcher) answeredLocked(r *episode, then *followUp) {
	b := r.batch
	r.batch = nil
	if b.open > 0 {
		b.open--
		s.nextBatchLocked(b, then)
	}
}

// refusedLocked queues the episodes of a batch again that an instance has refused or returned.
func (s *Batcher) refusedLocked(b *slotBatch, withdrawn bool, then *followUp) {
	l := b.lane
	var homeless []*sequence // bound: the slots
	for i := len(b.episodes) - 1; i >= 0; i-- {
		r := b.episodes[i]
		r.batch = nil
		if s.putBackLocked(r, then) {
			homeless = append(homeless, r.seq)
		}
	}
	if l.executes == b { // otherwise the instance is lost
		l.executes, l.refuses = nil, !withdrawn
	}
	s.returnLocked(homeless, then)
	s.formLocked(l, then)
	l.restLocked()
	s.drainLocked(l, then)
}
