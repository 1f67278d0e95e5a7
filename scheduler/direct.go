package scheduler

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// DefaultMaxQueue is how many requests may wait for one version of a model if
// nothing else is said.
const DefaultMaxQueue = 1 << 16

// DirectConfig sets up a Direct scheduler.
type DirectConfig struct {
	Model    string // for error texts
	MaxQueue int    // requests that may wait; default DefaultMaxQueue
	Observer Observer
}

// Direct is Triton's default scheduler: each request is executed by itself, by
// whichever instance is idle, first come, first served.
type Direct struct {
	config DirectConfig

	mu       sync.Mutex
	waiting  queue
	idle     []backend.Instance       // used last goes first: its memory is warm
	up       map[backend.Instance]int // how many requests each has
	hopeless map[backend.Instance]bool
	inside   int // requests that were accepted and have not ended
	stopped  bool
	drained  chan struct{} // closed when stopped and nothing is inside
}

var _ Scheduler = (*Direct)(nil)

// NewDirect makes a scheduler without instances.
func NewDirect(config DirectConfig) *Direct {
	if config.MaxQueue <= 0 {
		config.MaxQueue = DefaultMaxQueue
	}
	return &Direct{
		config: config, up: make(map[backend.Instance]int), hopeless: make(map[backend.Instance]bool),
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
	// done receives one value when the last response has been handed up.
	done chan struct{}

	// Guarded by the scheduler's mu.
	before, after *request
	queued        bool
	instance      backend.Instance // that has it, nil while it waits
}

// Infer implements infer.Handler.
func (d *Direct) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := &request{scheduler: d, send: send, done: make(chan struct{}, 1)}
	r.task = backend.Task{Context: ctx, Request: req, Send: r.deliver}
	r.tasks[0] = &r.task
	r.batch = backend.Batch{Tasks: r.tasks[:], Done: r.executed}
	t := Now()
	r.timing[0] = Timing{BatchSize: req.BatchSize, Start: t, Queued: t}

	in, err := d.accept(r)
	if err != nil {
		return err
	}
	if in != nil {
		in.Execute(&r.batch)
		if a, ok := in.(backend.Awaiter); ok {
			a.Await(r.done)
		}
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

// accept takes the request in and returns the instance that is to execute it
// at once, nil if it must wait.
func (d *Direct) accept(r *request) (backend.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.stopped:
		return nil, infer.Errorf(infer.Unavailable,
			"%sServer is stopping, scheduler for model has stopped accepting new inference requests", r.task.Request.LogPrefix())
	case d.waiting.length == 0:
		if in := d.takeLocked(); in != nil {
			d.inside++
			r.instance = in
			return in, nil
		}
	}
	switch {
	case d.hopelessLocked() != nil:
		return nil, unhealthy(d.hopelessLocked())
	case d.waiting.length >= d.config.MaxQueue:
		return nil, infer.Errorf(infer.Unavailable, "%sExceeds maximum queue size", r.task.Request.LogPrefix())
	}
	d.inside++
	d.waiting.pushBack(r)
	d.config.Observer.Pending(1)
	return nil, nil
}

// takeLocked returns an instance that can be given a request now, nil if there
// is none: an idle one, else one that executes and takes another ahead.
func (d *Direct) takeLocked() backend.Instance {
	if n := len(d.idle); n > 0 {
		in := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.up[in]++
		return in
	}
	for in, has := range d.up {
		if has == 1 && takesAhead(in) {
			d.up[in]++
			return in
		}
	}
	return nil
}

func takesAhead(in backend.Instance) bool {
	p, ok := in.(backend.Pipeliner)
	return ok && p.Ahead()
}

// hopelessLocked returns an instance if there is none that could ever execute
// something soon.
func (d *Direct) hopelessLocked() backend.Instance {
	if len(d.up) > 0 {
		return nil
	}
	for in := range d.hopeless {
		if d.hopeless[in] {
			continue
		}
		return nil // it is being restarted
	}
	for in := range d.hopeless {
		return in
	}
	return nil
}

func unhealthy(in backend.Instance) error {
	return infer.Errorf(infer.Internal, "Stub process '%s' is not healthy.", in.Name())
}

// deliver hands a response up and notices the last one.
func (r *request) deliver(response *infer.Response) {
	final := response.Final
	r.send(response)
	if final {
		r.scheduler.ended()
		r.done <- struct{}{}
	}
}

func (d *Direct) ended() {
	d.mu.Lock()
	d.inside--
	if d.stopped && d.inside == 0 {
		close(d.drained)
	}
	d.mu.Unlock()
}

// executed is the batch's Done: it counts, and gives the instance the next
// request.
func (r *request) executed(_ *backend.Batch, report backend.Report) {
	d := r.scheduler
	if report.Refused {
		d.again(r)
		return
	}
	r.execution = Execution{Requests: r.timing[:], Report: report}
	d.config.Observer.Executed(&r.execution)
	d.mu.Lock()
	in := r.instance
	r.instance = nil
	has, up := d.up[in]
	if up { // or it was lost meanwhile
		d.up[in] = has - 1
		if has == 1 {
			d.idle = append(d.idle, in)
		}
	}
	d.mu.Unlock()
	d.dispatch()
}

// dispatch hands out what waits, as long as somebody can take it.
func (d *Direct) dispatch() {
	for {
		d.mu.Lock()
		if d.waiting.length == 0 {
			d.mu.Unlock()
			return
		}
		in := d.takeLocked()
		if in == nil {
			d.mu.Unlock()
			return
		}
		next := d.waiting.pop()
		next.instance = in
		d.mu.Unlock()
		d.config.Observer.Pending(-1)
		in.Execute(&next.batch)
	}
}

// again puts a request that a lost instance had not looked at first in line.
func (d *Direct) again(r *request) {
	d.mu.Lock()
	r.instance = nil
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

// cancel ends a request that waits, and tells the model of one that runs.
func (d *Direct) cancel(r *request) {
	d.mu.Lock()
	if r.queued {
		d.waiting.remove(r)
		d.mu.Unlock()
		d.config.Observer.Pending(-1)
		d.config.Observer.Failed(Canceled, r.timing[0].Start)
		r.deliver(infer.ErrorResponse(&infer.Error{Code: infer.Cancelled}))
		return
	}
	in := r.instance
	d.mu.Unlock()
	if c, ok := in.(backend.Canceller); ok {
		c.Cancel(&r.task)
	}
}

// Up implements backend.Events.
func (d *Direct) Up(in backend.Instance) {
	d.mu.Lock()
	d.up[in] = 0
	delete(d.hopeless, in)
	d.idle = append(d.idle, in)
	d.mu.Unlock()
	d.dispatch()
}

// Down implements backend.Events.
func (d *Direct) Down(in backend.Instance, hopeless bool) {
	d.mu.Lock()
	delete(d.up, in)
	d.hopeless[in] = hopeless
	for i, other := range d.idle {
		if other == in {
			d.idle = append(d.idle[:i], d.idle[i+1:]...)
			break
		}
	}
	var refused []*request
	if d.hopelessLocked() != nil {
		for r := d.waiting.pop(); r != nil; r = d.waiting.pop() {
			refused = append(refused, r)
		}
	}
	d.mu.Unlock()
	for _, r := range refused {
		d.config.Observer.Pending(-1)
		d.config.Observer.Failed(BackendFailure, r.timing[0].Start)
		r.deliver(infer.ErrorResponse(unhealthy(in)))
	}
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

// InFlight implements Scheduler.
func (d *Direct) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inside
}
