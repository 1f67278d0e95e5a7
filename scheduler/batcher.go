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

// BatcherConfig sets up a Batcher.
type BatcherConfig struct {
	Model    string // for error texts
	MaxQueue int    // requests that may wait; default DefaultMaxQueue
	Observer Observer
	Graph    *Graph // shared with what its models can call; default one of its own
	// Iterative has a request that a model has released for another round executed
	// again; otherwise that is an error.
	Iterative bool
	// Released, if not nil, is called once for each request that was accepted: when
	// the batch that it was executed in is done, before or after its last response,
	// or before it is answered without having been executed. It does not block.
	Released func(*infer.Request)
	Log      zerolog.Logger
}

// Batcher is Triton's default scheduler: each request is executed by itself, by
// whichever instance is idle, first come, first served. A request that was
// handed to an instance ahead is asked back when another could begin it at once.
type Batcher struct {
	config BatcherConfig

	sequences atomic.Uint64 // that were begun for requests without a correlation id

	mu       sync.Mutex
	waiting  queue
	idle     []backend.Instance // used last goes first: its memory is warm
	up       map[backend.Instance]*load
	aheads   int                       // instances of up that have a request ahead
	retiring int                       // instances of up that get nothing more
	hopeless map[backend.Instance]bool // those that are down
	retired  map[backend.Instance]bool // those that are to come back no more
	changes  uint64                    // of up and hopeless
	inside   int                       // requests that were accepted and have not ended
	stopped  bool
	drained  chan struct{} // closed when stopped and nothing is inside
	quiet    chan struct{} // closed when nothing is inside; nil while nobody waits for that
}

var _ Scheduler = (*Batcher)(nil)

// NewBatcher makes a scheduler without instances.
func NewBatcher(config BatcherConfig) *Batcher {
	if config.MaxQueue <= 0 {
		config.MaxQueue = DefaultMaxQueue
	}
	if config.Graph == nil {
		config.Graph = NewGraph()
	}
	return &Batcher{
		config: config, up: make(map[backend.Instance]*load), hopeless: make(map[backend.Instance]bool),
		retired: make(map[backend.Instance]bool), drained: make(chan struct{}),
	}
}

// request is one request on its way, together with the batch of one that it is
// executed as.
type request struct {
	scheduler *Batcher
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
func (d *Batcher) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
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
func (d *Batcher) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := d.newRequest(ctx, req, send)
	if _, err := d.begin(r); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.ended {
		r.unwatch = context.AfterFunc(ctx, func() { d.cancel(r) })
	}
	return nil
}

func (d *Batcher) newRequest(ctx context.Context, req *infer.Request, send infer.Sender) *request {
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
func (d *Batcher) begin(r *request) (backend.Instance, error) {
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
func (d *Batcher) admit(r *request) error {
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
func (d *Batcher) accept(r *request) (in backend.Instance, ahead bool, err error) {
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
func (d *Batcher) end(r *request) {
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
func (d *Batcher) outLocked() {
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
	if len(report.Rescheduled) > 0 {
		d.reschedule(r)
		return
	}
	d.mu.Lock()
	drained := d.leaveLocked(r)
	d.mu.Unlock()
	d.released(r)
	drained()
	d.dispatch()
}

// released tells whoever wants to know that no instance has a request any more,
// nor will have.
func (d *Batcher) released(r *request) {
	if d.config.Released != nil {
		d.config.Released(r.task.Request)
	}
}

// dispatch hands out what waits, as long as somebody can take it. If nothing
// waits and an instance is idle, it asks for what others have ahead.
func (d *Batcher) dispatch() {
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
func (d *Batcher) again(r *request, withdrawn bool) {
	d.mu.Lock()
	drained := func() {}
	if withdrawn {
		drained = d.leaveLocked(r)
	}
	r.instance = nil
	if r.task.Context.Err() != nil {
		d.mu.Unlock()
		drained()
		d.canceled(r)
		d.dispatch()
		return
	}
	if lost := d.hopelessLocked(); lost != nil {
		d.mu.Unlock()
		drained()
		d.fail(r, BackendFailure, unhealthy(lost))
		return
	}
	d.waiting.pushFront(r)
	d.mu.Unlock()
	drained()
	d.config.Observer.Pending(1)
	d.dispatch()
}

// cancel ends a request that waits, and tells the model of one that it has: one
// that is executed, or to which it goes on sending responses.
func (d *Batcher) cancel(r *request) {
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
func (d *Batcher) canceled(r *request) {
	d.fail(r, Canceled, &infer.Error{Code: infer.Cancelled})
}

// fail answers a request that is in no queue and that no instance has.
func (d *Batcher) fail(r *request, reason Reason, err error) {
	d.config.Observer.Failed(reason, r.timing[0].Start)
	d.released(r)
	r.deliver(infer.ErrorResponse(err))
}

// Stop implements Scheduler.
func (d *Batcher) Stop(ctx context.Context) error {
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
func (d *Batcher) Drain(ctx context.Context) error {
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
func (d *Batcher) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inside
}
