package scheduler

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/rs/zerolog"
)

// DefaultMaxQueue is how many requests may wait for one version of a model if
// nothing else is said.
const DefaultMaxQueue = 1 << 16

// DirectConfig sets up a Direct scheduler.
type DirectConfig struct {
	Model    string // for error texts
	MaxQueue int    // requests that may wait; default DefaultMaxQueue
	Observer Observer
	Graph    *Graph // shared with what its models can call; default one of its own
	// Iterative has a request that a model has released for another round executed
	// again; otherwise that is an error.
	Iterative bool
	Log       zerolog.Logger
}

// Direct is Triton's default scheduler: each request is executed by itself, by
// whichever instance is idle, first come, first served. A request that was
// handed to an instance ahead is asked back when another could begin it at once.
type Direct struct {
	config DirectConfig

	sequences atomic.Uint64 // that were begun for requests without a correlation id

	mu       sync.Mutex
	waiting  queue
	idle     []backend.Instance // used last goes first: its memory is warm
	up       map[backend.Instance]*load
	aheads   int                       // instances of up that have a request ahead
	hopeless map[backend.Instance]bool // those that are down
	changes  uint64                    // of up and hopeless
	inside   int                       // requests that were accepted and have not ended
	stopped  bool
	drained  chan struct{} // closed when stopped and nothing is inside
	quiet    chan struct{} // closed when nothing is inside; nil while nobody waits for that
}

var _ Scheduler = (*Direct)(nil)

// NewDirect makes a scheduler without instances.
func NewDirect(config DirectConfig) *Direct {
	if config.MaxQueue <= 0 {
		config.MaxQueue = DefaultMaxQueue
	}
	if config.Graph == nil {
		config.Graph = NewGraph()
	}
	return &Direct{
		config: config, up: make(map[backend.Instance]*load), hopeless: make(map[backend.Instance]bool),
		drained: make(chan struct{}),
	}
}

// request is one request on its way, together with the batch of one that it is
// executed as.
type request struct {
	scheduler *Direct
	task      backend.Task
	batch     backend.Batch
	tasks     [1]*backend.Task
	execution Execution
	timing    [1]Timing
	send      infer.Sender
	// done receives one value when the last response has been handed up; nil if
	// nobody waits.
	done chan struct{}
	call *call // nil if no execution waits for this

	// Guarded by the scheduler's mu.
	ended         bool
	unwatch       func() bool // ends the watch over the context of one that nobody waits for
	before, after *request
	queued        bool
	instance      backend.Instance // that has it, or had it last; nil before
	turns         uint32           // how often it was given to an instance
}

// Infer implements infer.Handler.
func (d *Direct) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := d.newRequest(ctx, req, send)
	r.done = make(chan struct{}, 1)
	in, err := d.begin(r)
	if err != nil {
		return err
	}
	if a, ok := in.(backend.Awaiter); ok {
		a.Await(r.done)
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		d.cancel(r)
		<-r.done
		return nil
	}
}

// Submit implements infer.Submitter.
func (d *Direct) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := d.newRequest(ctx, req, send)
	if _, err := d.begin(r); err != nil {
		return err
	}
	d.watch(r)
	return nil
}

// watch cancels a request that nobody waits for when its context ends.
func (d *Direct) watch(r *request) {
	ctx := r.task.Context
	if ctx.Done() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.ended {
		r.unwatch = context.AfterFunc(ctx, func() { d.cancel(r) })
	}
}

func (d *Direct) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *request {
	r := &request{scheduler: d, send: send}
	r.task = backend.Task{Context: ctx, Request: req, Send: r.deliver}
	r.tasks[0] = &r.task
	r.batch = backend.Batch{Tasks: r.tasks[:], Done: r.executed}
	t := Now()
	r.timing[0] = Timing{BatchSize: req.BatchSize, Start: t, Queued: t}
	return r
}

// begin takes the request in and returns the instance that it has been handed
// to, nil if it waits.
func (d *Direct) begin(r *request) (backend.Instance, error) {
	if err := d.admit(r); err != nil {
		return nil, err
	}
	in, ahead, err := d.accept(r)
	switch {
	case in != nil:
	case r.call == nil:
		return nil, err
	case err != nil:
		d.config.Graph.leave(r.call)
		return nil, err
	default:
		return nil, d.config.Graph.check(r.call)
	}
	in.Execute(&r.batch)
	if ahead && d.handed(in, r) {
		d.dispatch()
	}
	return in, nil
}

// admit refuses what is to be refused whoever is idle, and notes a call.
func (d *Direct) admit(r *request) error {
	req := r.task.Request
	if d.config.Iterative {
		if err := d.admitSequence(req); err != nil {
			return err
		}
	}
	if req.Caller == nil {
		return nil
	}
	if err := checkDepth(req); err != nil {
		return err
	}
	d.config.Graph.enter(r)
	return nil
}

// accept takes the request in and returns the instance that is to execute it
// at once, nil if it must wait, and whether it is handed over ahead.
func (d *Direct) accept(r *request) (in backend.Instance, ahead bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped:
		return nil, false, infer.Errorf(infer.Unavailable,
			"%sServer is stopping, scheduler for model has stopped accepting new inference requests", r.task.Request.LogPrefix())
	case d.waiting.length == 0:
		if in, ahead := d.takeLocked(r); in != nil {
			d.inside++
			return in, ahead, nil
		}
	}
	switch {
	case d.hopelessLocked() != nil:
		return nil, false, unhealthy(d.hopelessLocked())
	case d.waiting.length >= d.config.MaxQueue:
		return nil, false, infer.Errorf(infer.Unavailable, "%sExceeds maximum queue size", r.task.Request.LogPrefix())
	}
	d.inside++
	d.waiting.pushBack(r)
	d.config.Observer.Pending(1)
	return nil, false, nil
}

// deliver hands a response up and notices the last one.
func (r *request) deliver(response *infer.Response) {
	final := response.Final
	if c := r.call; c != nil {
		c.sent.Add(1)
		if final { // who gets it may go on before end
			r.scheduler.config.Graph.leave(c)
		}
	}
	r.send(response)
	if final {
		r.scheduler.end(r)
	}
}

// end takes a request out whose last response has been handed up.
func (d *Direct) end(r *request) {
	d.mu.Lock()
	r.ended = true
	unwatch := r.unwatch
	d.outLocked()
	d.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	if r.done != nil {
		r.done <- struct{}{}
	}
}

// outLocked counts a request that is inside no more.
func (d *Direct) outLocked() {
	d.inside--
	if d.inside > 0 {
		return
	}
	if d.stopped {
		close(d.drained)
	}
	if d.quiet != nil {
		close(d.quiet)
		d.quiet = nil
	}
}

// executed is the batch's Done: it counts, and gives the instance the next
// request.
func (r *request) executed(_ *backend.Batch, report backend.Report) {
	d := r.scheduler
	if report.Refused {
		d.again(r, report.Withdrawn)
		return
	}
	r.execution = Execution{Requests: r.timing[:], Report: report}
	d.config.Observer.Executed(&r.execution)
	if c := r.task.Request.Costs; c != nil {
		c.Add(report.ComputeStart-report.Start, report.ComputeEnd-report.ComputeStart, report.End-report.ComputeEnd)
	}
	if len(report.Rescheduled) > 0 {
		d.reschedule(r)
		return
	}
	d.mu.Lock()
	d.leaveLocked(r)
	d.mu.Unlock()
	d.dispatch()
}

// dispatch hands out what waits, as long as somebody can take it. If nothing
// waits and an instance is idle, it asks for what others have ahead.
func (d *Direct) dispatch() {
	for {
		d.mu.Lock()
		next := d.waiting.first
		if next == nil {
			stuck := d.stuckLocked()
			d.mu.Unlock()
			if stuck == nil {
				return
			}
			stuck.Withdraw() // what comes back goes through again
			continue
		}
		if next.task.Context.Err() != nil {
			d.waiting.pop()
			d.mu.Unlock()
			d.config.Observer.Pending(-1)
			d.canceled(next)
			continue
		}
		in, ahead := d.takeLocked(next)
		if in == nil {
			d.mu.Unlock()
			return
		}
		d.waiting.pop()
		d.mu.Unlock()
		d.config.Observer.Pending(-1)
		in.Execute(&next.batch)
		if ahead {
			d.handed(in, next)
		}
	}
}

// again puts a request that an instance had not looked at first in line: the
// instance was lost, or has given it back and goes on. A request whose client
// has gone meanwhile ends here; cancel, which has found or finds it in no queue,
// leaves that to this.
func (d *Direct) again(r *request, withdrawn bool) {
	d.mu.Lock()
	if withdrawn {
		d.leaveLocked(r)
	}
	r.instance = nil
	if r.task.Context.Err() != nil {
		d.mu.Unlock()
		d.canceled(r)
		d.dispatch()
		return
	}
	if lost := d.hopelessLocked(); lost != nil {
		d.mu.Unlock()
		d.config.Observer.Failed(BackendFailure, r.timing[0].Start)
		r.deliver(infer.ErrorResponse(unhealthy(lost)))
		return
	}
	d.waiting.pushFront(r)
	d.mu.Unlock()
	d.config.Observer.Pending(1)
	d.dispatch()
}

// cancel ends a request that waits, and tells the model of one that it has: one
// that is executed, or to which it goes on sending responses.
func (d *Direct) cancel(r *request) {
	d.mu.Lock()
	if r.queued {
		d.waiting.remove(r)
		d.mu.Unlock()
		d.config.Observer.Pending(-1)
		d.canceled(r)
		return
	}
	in := r.instance
	if r.ended {
		in = nil
	}
	d.mu.Unlock()
	if c, ok := in.(backend.Canceller); ok {
		c.Cancel(&r.task)
	}
}

// canceled answers a request that whoever calls it has taken from the queue, or
// not put there.
func (d *Direct) canceled(r *request) {
	d.config.Observer.Failed(Canceled, r.timing[0].Start)
	r.deliver(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
}

// Stop implements Scheduler.
func (d *Direct) Stop(ctx context.Context) error {
	d.mu.Lock()
	if !d.stopped {
		d.stopped = true
		if d.inside == 0 {
			close(d.drained)
		}
	}
	d.mu.Unlock()
	select {
	case <-d.drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Drain implements Scheduler.
func (d *Direct) Drain(ctx context.Context) error {
	d.mu.Lock()
	if d.inside == 0 {
		d.mu.Unlock()
		return nil
	}
	if d.quiet == nil {
		d.quiet = make(chan struct{})
	}
	quiet := d.quiet
	d.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// InFlight implements Scheduler.
func (d *Direct) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inside
}
