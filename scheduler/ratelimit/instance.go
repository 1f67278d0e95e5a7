package ratelimit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// Events passes on the instances of a version, wrapped so that they wait for their turn.
type Events struct {
	limiter *Limiter
	next    backend.Events

	mu        sync.Mutex
	instances map[backend.Instance]*instance // by innermost instance
}

// Available implements backend.Events.
func (e *Events) Available(in backend.Instance) {
	key := backend.Innermost(in)
	e.mu.Lock()
	l := e.instances[key]
	if l == nil {
		l = &instance{inner: in, limiter: e.limiter, priority: 1}
		if m := key.Capabilities().GroupMember; m != nil {
			l.needs = needsOf(m.Group(), m.Device())
			l.priority = max(uint64(m.Group().GetRateLimiter().GetPriority()), 1)
		}
		e.instances[key] = l // bound: the instances
	}
	e.mu.Unlock()
	e.next.Available(l)
}

// Lost implements backend.Events.
func (e *Events) Lost(in backend.Instance, hopeless bool) {
	e.mu.Lock()
	l := e.instances[backend.Innermost(in)]
	e.mu.Unlock()
	if l == nil {
		return
	}
	l.giveBack(nil, backend.Report{Refused: true})
	e.next.Lost(l, hopeless)
}

// Forget drops an instance that has ended.
func (e *Events) Forget(in backend.Instance) {
	e.mu.Lock()
	delete(e.instances, backend.Innermost(in))
	e.mu.Unlock()
}

// instance is an instance whose batches wait for their turn. It takes no batch ahead.
type instance struct {
	inner    backend.Instance
	limiter  *Limiter
	needs    []need
	priority uint64
	running  atomic.Bool // changed under the limiter's mu

	// Guarded by the limiter's mu.
	executions uint64
	batch      *backend.Batch    // staged or running; nil while an applicant waits
	by         backend.Applicant // the waiting applicant
	bls        []*infer.Request  // BLS requests of the applicant
	index      int               // in staged
	nested     bool              // its callers hold resources that it needs
	staging    uint64            // its number in the order of arrival
}

func (in *instance) Name() string { return in.inner.Name() }

// Capabilities implements backend.Instance.
func (in *instance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Awaiter: in, Canceller: in, TurnTaker: in, Wrapped: in.inner}
}

func (in *instance) Ready(ctx context.Context) error { return in.inner.Ready(ctx) }

// Await implements backend.Awaiter. It does not spin before the batch is executed.
func (in *instance) Await(done <-chan struct{}) {
	if a := in.inner.Capabilities().Awaiter; a != nil && in.running.Load() {
		a.Await(done)
	}
}

// Execute implements backend.Instance.
func (in *instance) Execute(b *backend.Batch) {
	l := in.limiter
	l.mu.Lock()
	if in.batch != nil { // a scheduler hands over one at a time
		l.mu.Unlock()
		b.Done(b, backend.Report{Refused: true})
		return
	}
	in.batch = b
	l.stageLocked(in)
	l.mu.Unlock()
	// A panic from here on is not one of Execute: the batch may already be answered.
	panics.Guard(l.log, panics.Scheduler, l.allocate, nil)()
}

// Cancel implements backend.Canceller. A staged batch goes back to the scheduler, which decides
// about its other requests.
func (in *instance) Cancel(task *backend.Task) {
	if in.giveBack(task, backend.Report{Refused: true, Withdrawn: true}) {
		return
	}
	backend.Cancel(in.inner, task)
}

// cancelGone tells the instance about clients that disconnected between staging and execution.
func (in *instance) cancelGone(tasks []*backend.Task) {
	for _, task := range tasks {
		if task.Context.Err() != nil {
			backend.Cancel(in.inner, task)
		}
	}
}

// giveBack returns a staged batch to its scheduler, if the instance has one and, unless task is
// nil, the batch contains the task.
func (in *instance) giveBack(task *backend.Task, report backend.Report) bool {
	l := in.limiter
	l.mu.Lock()
	if !l.staged.Has(in) || in.batch == nil || task != nil && !slices.Contains(in.batch.Tasks, task) {
		l.mu.Unlock()
		return false
	}
	l.staged.Remove(in)
	b := in.batch
	in.batch = nil
	l.mu.Unlock()
	b.Done(b, report)
	l.allocate() // it may have blocked others
	return true
}

// execute gives the instance a batch whose turn has come.
func (in *instance) execute() {
	tasks := in.batch.Tasks // the batch belongs to this instance until its Done
	// A new Batch for each execution: the inner instance may read a batch after its Done.
	handover.Give(in.limiter.log, in.inner, &backend.Batch{Tasks: tasks, Trial: in.batch.Trial, Done: in.done})
	in.cancelGone(tasks)
}

// done ends the turn of an instance. The scheduler stages its next batch before others are
// considered.
func (in *instance) done(_ *backend.Batch, report backend.Report) {
	l := in.limiter
	l.mu.Lock()
	l.releaseLocked(in)
	if !report.Refused {
		in.executions++
	}
	b := in.batch
	in.batch = nil
	l.mu.Unlock()
	b.Done(b, report)
	l.allocate()
}
