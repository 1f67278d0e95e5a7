package stacked

import (
	"context"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// copyAside is the size from which a batch is merged by a separate goroutine, to free the
// scheduler's.
const copyAside = 1 << 20

// instance merges the batches of an inner instance. It is no backend.Pipeliner: it takes no batch
// ahead.
type instance struct {
	inner    backend.Instance
	plan     *Plan
	allocate Allocator
	account  *budget.Account

	mu      sync.Mutex
	groups  map[*group]struct{} // not answered yet
	merging int                 // running merges in separate goroutines
	settled sync.Cond           // merging is 0
}

// Capabilities implements backend.Instance.
func (s *instance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Awaiter: s, Canceller: s, Wrapped: s.inner}
}

// Name implements backend.Instance.
func (s *instance) Name() string { return s.inner.Name() }

// Ready implements backend.Instance.
func (s *instance) Ready(ctx context.Context) error { return s.inner.Ready(ctx) }

// Await implements backend.Awaiter.
func (s *instance) Await(done <-chan struct{}) {
	if a := s.inner.Capabilities().Awaiter; a != nil {
		a.Await(done)
	}
}

// Execute implements backend.Instance.
func (s *instance) Execute(b *backend.Batch) {
	if len(b.Tasks) == 1 && s.plan.alone(b.Tasks[0].Request) {
		s.inner.Execute(b)
		return
	}
	g := s.newGroup(b)
	s.mu.Lock()
	s.groups[g] = struct{}{} // bound: batches in execution
	aside := len(b.Tasks) > 1 && inputBytes(b) >= copyAside
	if aside {
		s.merging++
	}
	s.mu.Unlock()
	if !aside {
		g.run()
		return
	}
	panics.Go(s.plan.log, panics.Scheduler, func() {
		defer s.merged()
		g.run()
	}, nil)
}

// merged counts a goroutine that has finished merging.
func (s *instance) merged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merging--; s.merging == 0 {
		s.settled.Broadcast()
	}
}

// settle waits until all merges have finished.
func (s *instance) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.merging > 0 {
		s.settled.Wait()
	}
}

// Cancel implements backend.Canceller. The model is told when the clients of the whole batch have
// disconnected.
func (s *instance) Cancel(task *backend.Task) {
	s.mu.Lock()
	var of *group
	for g := range s.groups {
		if slices.Contains(g.tasks, task) {
			of = g
			break
		}
	}
	s.mu.Unlock()
	if of == nil {
		backend.Cancel(s.inner, task) // a batch of one
	} else {
		of.cancel()
	}
}

func inputBytes(b *backend.Batch) (n int) {
	for _, task := range b.Tasks {
		for i := range task.Request.Inputs {
			n += len(task.Request.Inputs[i].Data)
		}
	}
	return n
}

// group is a batch that passes through the instance as one task.
type group struct {
	instance *instance
	batch    *backend.Batch     // the scheduler's
	tasks    []*backend.Task    // its tasks
	rows     []int64            // of each
	total    int64              // rows
	padded   map[string][]int64 // shapes of padded inputs
	memory   []infer.Memory     // of the merged inputs
	charge   budget.Charge      // of the notes
	begin    int64              // ns of CLOCK_MONOTONIC

	context everybody
	request infer.Request
	task    backend.Task
	one     [1]*backend.Task
	merged  backend.Batch

	mu     sync.Mutex
	handed bool // the instance has it
	over   bool // no response follows
}

func (s *instance) newGroup(b *backend.Batch) *group {
	g := &group{instance: s, batch: b, tasks: slices.Clone(b.Tasks), begin: backend.Now()} // bound: the batch
	g.context.tasks, g.context.log = g.tasks, s.plan.log
	g.task = backend.Task{Context: &g.context, Request: &g.request, Send: g.deliver}
	g.one[0] = &g.task
	for _, task := range g.tasks {
		g.task.Lost = max(g.task.Lost, task.Lost)
	}
	g.merged = backend.Batch{Tasks: g.one[:], Trial: b.Trial, Done: g.done}
	return g
}

// run merges the batch and executes it.
func (g *group) run() {
	if err := panics.Run(g.instance.plan.log, panics.Request, g.merge); err != nil {
		g.end()
		now := backend.Now()
		g.apart(func() {
			g.batch.Done(g.batch, backend.Report{Start: g.begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err})
		})
		for _, task := range g.tasks {
			g.apart(func() { task.Send(infer.ErrorResponse(err)) })
		}
		return
	}
	g.instance.inner.Execute(&g.merged)
	g.mu.Lock()
	g.handed = true
	over := g.over
	g.mu.Unlock()
	// The instance could not be told about clients that disconnected meanwhile.
	if !over && g.context.Err() != nil {
		g.apart(func() { backend.Cancel(g.instance.inner, &g.task) })
	}
}

// apart calls f. A panic in f must not look like one of Execute, or the batch would be answered
// again.
func (g *group) apart(f func()) {
	panics.Guard(g.instance.plan.log, panics.Request, f, nil)()
}

// cancel tells the instance if all clients have disconnected.
func (g *group) cancel() {
	if g.context.Err() == nil {
		return
	}
	g.mu.Lock()
	tell := g.handed && !g.over
	g.mu.Unlock()
	if tell {
		backend.Cancel(g.instance.inner, &g.task)
	}
}

// done is the merged batch's Done.
func (g *group) done(_ *backend.Batch, r backend.Report) {
	if r.Refused || len(r.Rescheduled) > 0 { // no response follows
		g.end()
	}
	for _, task := range g.tasks {
		if r.Refused {
			task.Lost = g.task.Lost
		}
	}
	if len(r.Rescheduled) > 0 {
		r.Rescheduled = g.tasks
	}
	if len(r.Failed) > 0 {
		r.Failed = make([]int, len(g.tasks)) // bound: the batch
		for i := range r.Failed {
			r.Failed[i] = i
		}
	}
	if !r.Refused {
		r.Start = min(r.Start, g.begin) // merging counts as preparing the inputs
	}
	g.batch.Done(g.batch, r)
}

// end releases the memory of the group.
func (g *group) end() {
	g.mu.Lock()
	over := g.over
	g.over = true
	g.mu.Unlock()
	if over {
		return
	}
	s := g.instance
	s.mu.Lock()
	delete(s.groups, g)
	s.mu.Unlock()
	for _, m := range g.memory {
		m.Release()
	}
	g.memory = nil
	g.charge.Settle()
	g.context.close()
}

// deliver passes a response of the model to all tasks.
func (g *group) deliver(r *infer.Response) {
	responses := make([]*infer.Response, len(g.tasks)) // bound: the batch
	final := r.Final
	err := panics.Run(g.instance.plan.log, panics.Request, func() error {
		responses = g.split(r)
		return nil
	})
	if err != nil {
		responses = g.fail(responses, infer.AsError(err), final)
	}
	if final {
		g.end()
	}
	for i, task := range g.tasks {
		task.Send(responses[i])
	}
}
