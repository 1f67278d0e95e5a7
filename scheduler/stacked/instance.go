package stacked

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// copyAside is from how many bytes on a batch is merged by a goroutine of its
// own: the scheduler's goroutine has other work to do.
const copyAside = 1 << 20

// instance is an instance whose batches are merged before they reach it. It is
// no backend.Pipeliner: while a batch is executed there is none ahead.
type instance struct {
	inner    backend.Instance
	plan     *Plan
	allocate Allocator
	account  *budget.Account

	mu      sync.Mutex
	groups  map[*group]struct{} // that have not been answered
	merging int                 // by goroutines of their own
	settled sync.Cond           // merging is 0
}

var (
	_ backend.Instance  = (*instance)(nil)
	_ backend.Awaiter   = (*instance)(nil)
	_ backend.Canceller = (*instance)(nil)
	_ backend.Wrapper   = (*instance)(nil)
)

// Wrapped implements backend.Wrapper.
func (s *instance) Wrapped() backend.Instance { return s.inner }

// Name implements backend.Instance.
func (s *instance) Name() string { return s.inner.Name() }

// Ready implements backend.Instance.
func (s *instance) Ready(ctx context.Context) error { return s.inner.Ready(ctx) }

// Await implements backend.Awaiter.
func (s *instance) Await(done <-chan struct{}) {
	if a, ok := s.inner.(backend.Awaiter); ok {
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
	s.groups[g] = struct{}{}
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

// merged counts a goroutine that merges no more.
func (s *instance) merged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merging--; s.merging == 0 {
		s.settled.Broadcast()
	}
}

// settle waits until the instance has what it was given.
func (s *instance) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.merging > 0 {
		s.settled.Wait()
	}
}

// Cancel implements backend.Canceller. The model is told when no client waits for
// any response of the batch.
func (s *instance) Cancel(task *backend.Task) {
	s.mu.Lock()
	var of *group
	for g := range s.groups {
		if g.has(task) {
			of = g
			break
		}
	}
	s.mu.Unlock()
	switch c, ok := s.inner.(backend.Canceller); {
	case !ok:
	case of == nil:
		c.Cancel(task) // it is a batch by itself
	default:
		of.cancel(c)
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

// group is a batch on its way through the instance as one task.
type group struct {
	instance *instance
	batch    *backend.Batch     // the scheduler's
	tasks    []*backend.Task    // its tasks
	rows     []int64            // of each
	total    int64              // rows
	padded   map[string][]int64 // shapes of the merged inputs that are padded
	memory   []infer.Memory     // of the merged inputs
	charge   budget.Charge      // for the notes
	begin    int64              // ns of CLOCK_MONOTONIC

	context everybody
	request infer.Request
	task    backend.Task
	one     [1]*backend.Task
	merged  backend.Batch

	mu     sync.Mutex
	handed bool // to the instance
	over   bool // nothing is to come from it
}

func (s *instance) newGroup(b *backend.Batch) *group {
	g := &group{instance: s, batch: b, tasks: append([]*backend.Task(nil), b.Tasks...), begin: backend.Now()}
	g.context.tasks, g.context.log = g.tasks, s.plan.log
	g.task = backend.Task{Context: &g.context, Request: &g.request, Send: g.deliver}
	g.one[0] = &g.task
	for _, task := range g.tasks {
		g.task.Lost = max(g.task.Lost, task.Lost)
	}
	g.merged = backend.Batch{Tasks: g.one[:], Trial: b.Trial, Done: g.done}
	return g
}

func (g *group) has(task *backend.Task) bool {
	for _, t := range g.tasks {
		if t == task {
			return true
		}
	}
	return false
}

// run merges the batch and hands it to the instance.
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
	// The instance could not be told of clients that have left meanwhile.
	if c, ok := g.instance.inner.(backend.Canceller); ok && !over && g.context.Err() != nil {
		g.apart(func() { c.Cancel(&g.task) })
	}
}

// apart calls f, whose panic is not one of Execute: that would have the batch answered
// again.
func (g *group) apart(f func()) {
	panics.Guard(g.instance.plan.log, panics.Request, f, nil)()
}

// cancel tells the instance if everybody has left.
func (g *group) cancel(c backend.Canceller) {
	if g.context.Err() == nil {
		return
	}
	g.mu.Lock()
	tell := g.handed && !g.over
	g.mu.Unlock()
	if tell {
		c.Cancel(&g.task)
	}
}

// done is the merged batch's Done.
func (g *group) done(_ *backend.Batch, r backend.Report) {
	if r.Refused || len(r.Rescheduled) > 0 { // there is no response to come
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
		r.Failed = make([]int, len(g.tasks))
		for i := range r.Failed {
			r.Failed[i] = i
		}
	}
	if !r.Refused {
		r.Start = min(r.Start, g.begin) // merging is a part of making the inputs
	}
	g.batch.Done(g.batch, r)
}

// end gives back what the group holds.
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

// deliver hands a response of the model to everybody.
func (g *group) deliver(r *infer.Response) {
	responses := make([]*infer.Response, len(g.tasks))
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
