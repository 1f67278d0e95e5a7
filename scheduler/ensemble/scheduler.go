package ensemble

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// Scheduler executes the requests of one version of an ensemble.
type Scheduler struct {
	config       Config
	tensors      map[string]int // numbers by name
	steps        []step
	inputs       []int // tensors
	outputs      map[string]output
	whole        *plan
	widest       int                // inputs of all steps
	keepsNoSlots bool               // see slotHolder
	limiters     []*inflightLimiter // bound: the config
	sizes        sizes

	mu     sync.Mutex
	census scheduler.Census
}

var _ scheduler.Scheduler = (*Scheduler)(nil)

// New makes the scheduler of an ensemble.
func New(config Config) *Scheduler {
	e := &Scheduler{config: config, tensors: make(map[string]int), outputs: make(map[string]output)}
	e.compile()
	e.sizes = e.measure()
	for range config.Steps {
		e.limiters = append(e.limiters, &inflightLimiter{limit: config.MaxInflight})
	}
	return e
}

// Infer implements infer.Handler.
func (e *Scheduler) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	f, err := e.accept(ctx, req, send)
	if err != nil {
		return err
	}
	f.done = make(chan struct{}, 1)
	f.moved = make(chan struct{}, 1)
	f.begin()
	if req.Entered != nil {
		req.Entered()
	}
	f.wait()
	return nil
}

// Submit implements infer.Submitter.
func (e *Scheduler) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	f, err := e.accept(ctx, req, send)
	if err != nil {
		return err
	}
	f.begin()
	return nil
}

// Begin implements scheduler.Scheduler. An ensemble has no instances.
func (e *Scheduler) Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	return nil, e.Submit(ctx, req, send)
}

// accept charges and counts a request.
func (e *Scheduler) accept(ctx context.Context, req *infer.Request, send infer.Sender) (*flow, error) {
	n := e.size(len(req.Outputs) > 0)
	if err := e.take(n); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.census.StoppedLocked() {
		e.give(n)
		return nil, infer.Errorf(infer.Unavailable,
			"%sServer is stopping, scheduler for model has stopped accepting new inference requests", req.LogPrefix())
	}
	e.census.EnterLocked()
	return newFlow(e, ctx, req, send), nil
}

// end removes a request whose last response has been sent.
func (e *Scheduler) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.census.LeaveLocked()
}

// Available implements backend.Events; an ensemble has no instances.
func (e *Scheduler) Available(backend.Instance) {}

// Lost implements backend.Events.
func (e *Scheduler) Lost(backend.Instance, bool) {}

// Forget implements scheduler.Scheduler: an ensemble has no instances.
func (e *Scheduler) Forget(backend.Instance) {}

// Retire implements Scheduler.
func (e *Scheduler) Retire(_ backend.Instance, drained func()) (answered bool) {
	drained()
	return true
}

// Stop implements Scheduler.
func (e *Scheduler) Stop(ctx context.Context) error {
	e.mu.Lock()
	e.census.StopLocked()
	quiet := e.census.QuietLocked()
	e.mu.Unlock()
	return scheduler.Wait(ctx, quiet)
}

// Drain implements Scheduler.
func (e *Scheduler) Drain(ctx context.Context) error {
	e.mu.Lock()
	quiet := e.census.QuietLocked()
	e.mu.Unlock()
	return scheduler.Wait(ctx, quiet)
}

// InFlight implements Scheduler.
func (e *Scheduler) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.census.InFlightLocked()
}
