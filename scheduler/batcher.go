package scheduler

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/handover"
	"github.com/nereid-serving/nereid/scheduler/roster"
	"github.com/nereid-serving/nereid/scheduler/waitgraph"
)

// DefaultMaxQueue is the default number of requests that may wait for one version of a model.
const DefaultMaxQueue = 1 << 16

// BatcherConfig configures a Batcher.
type BatcherConfig struct {
	Model    string // for error texts
	MaxQueue int    // requests that may wait; default DefaultMaxQueue
	Observer Observer
	Graph    *waitgraph.Graph // shared with all models that can call each other; default: a new one
	// Batching configures batches; nil executes each request by itself.
	Batching *batching.Rules
	// Released, if not nil, is called once for each accepted request when no instance has or will
	// have it: when its batch is done, or before it is answered without an execution. It must not
	// block.
	Released func(*infer.Request)
	// Again, if not nil, takes a request that its model has rescheduled. The request is no longer
	// in flight, and its Sender is not called again. Without Again, rescheduling is an error.
	Again func(*infer.Request)
	Log   zerolog.Logger
}

// Batcher is Triton's default scheduler and its dynamic batcher. Requests wait in lines, first
// come, first served within each priority, until an instance is idle and their batch need not wait.
// An instance with short executions gets one more batch while it executes; the batch is withdrawn
// when another instance could begin it at once.
type Batcher struct {
	config BatcherConfig
	rules  rules
	order  *order // nil if responses leave as they come
	// prefetches allows a complete batch to be formed before it can be executed. Later requests can
	// then neither overtake its requests nor find the queue limit changed by them.
	prefetches bool

	mu         sync.Mutex
	census     Census
	waiting    lines
	forming    forming
	dropped    []dropped // answered after unlocking
	hold       int       // executions begin when this number of requests waits; 0: at once
	instances  roster.Roster[*member]
	idle       []*member         // available and without a batch, least recently used first
	rested     int64             // when an idle member last ended a batch
	aheads     int               // members that have a batch ahead
	takesTurns bool              // instances take turns with those of other models
	asked      backend.TurnTaker // waits for its turn, or is about to get a batch
	timer      *time.Timer       // nil before its first use
	wakeAt     int64             // when timer calls dispatch; 0: never
}

var _ Scheduler = (*Batcher)(nil)

// NewBatcher returns a scheduler without instances.
func NewBatcher(config BatcherConfig) *Batcher {
	if config.MaxQueue <= 0 {
		config.MaxQueue = DefaultMaxQueue
	}
	if config.Graph == nil {
		config.Graph = waitgraph.New(config.Log, waitgraph.Patience)
	}
	d := &Batcher{
		config: config, rules: newRules(config.Batching), prefetches: true,
		instances: roster.New(func() *member { return &member{} }), rested: math.MinInt64 / 2,
	}
	levels := []batching.Policy{{}}
	if b := config.Batching; b != nil {
		levels, d.hold = b.LevelPolicies(), b.StartWith
		d.prefetches = b.Levels == 0 && levels[0].Plain()
		if b.PreserveOrder {
			d.order = &order{log: &d.config.Log}
		}
	}
	d.waiting = newLines(levels)
	return d
}

// Infer implements infer.Handler.
func (d *Batcher) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	r := d.newRequest(ctx, req, send)
	r.Done = make(chan struct{}, 1)
	in, err := d.begin(r)
	if err != nil {
		return err
	}
	r.Await(ctx, req, in, func() { d.cancel(r) })
	return nil
}

// Submit implements infer.Submitter.
func (d *Batcher) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	_, err := d.Begin(ctx, req, send)
	return err
}

// Begin implements Scheduler.
func (d *Batcher) Begin(ctx context.Context, req *infer.Request, send infer.Sender) (backend.Awaiter, error) {
	r := d.newRequest(ctx, req, send)
	in, err := d.begin(r)
	if err != nil {
		return nil, err
	}
	d.watch(r)
	if in == nil {
		return nil, nil
	}
	return in.Capabilities().Awaiter, nil
}

// watch cancels a submitted request when its context ends.
func (d *Batcher) watch(r *request) {
	ctx := r.task.Context
	if ctx.Done() == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.ended {
		r.WatchLocked(ctx, func() { d.cancel(r) })
	}
}

// begin accepts the request and returns the instance that has it, or nil while it is queued.
func (d *Batcher) begin(r *request) (backend.Instance, error) {
	if err := r.EnterGraph(d.config.Graph, r, r.task.Request); err != nil {
		return nil, err
	}
	to, err := d.accept(r)
	switch {
	case err != nil:
		r.LeaveGraph(d.config.Graph)
		return nil, err
	case to.on != nil:
		handover.Give(d.config.Log, to.on.Instance(), &r.alone.Batch)
		if to.ahead && d.handed(to.on, &r.alone.batch) {
			d.dispatch()
		}
		return to.on.Instance(), nil
	case to.stirs:
		d.dispatch()
	}
	var in backend.Instance
	if to.inTurn {
		in = d.turnsTo(r)
	}
	if r.BLS != nil {
		return in, d.config.Graph.Check(r.BLS)
	}
	return in, nil
}

// destination tells where an accepted request goes: on executes it as a batch of one, perhaps
// ahead; without on it is queued.
type destination struct {
	on     *member
	ahead  bool
	stirs  bool // dispatch may find a batch
	inTurn bool // its instances take turns
}

// accept counts the request and either gives it to an instance or queues it.
func (d *Batcher) accept(r *request) (destination, error) {
	req := r.task.Request
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.census.StoppedLocked() {
		return destination{}, infer.Errorf(infer.Unavailable,
			"%sServer is stopping, scheduler for model has stopped accepting new inference requests", req.LogPrefix())
	}
	level := 0
	if d.config.Batching != nil {
		level = d.config.Batching.LevelOf(req.Priority)
	}
	r.line = fresh(level)
	r.deadline = d.waiting.levels[level].DeadlineOf(req, batching.MadeAt(req, r.timing[0].Queued))
	inTime := r.deadline == 0 || r.deadline > r.timing[0].Queued
	if d.waiting.length == 0 && d.hold == 0 && inTime {
		complete := d.rules.sizeOf(r) >= d.rules.enough
		if complete || d.rules.delay == 0 {
			if on, ahead := d.takeLocked(&r.alone.batch, complete); on != nil {
				d.census.EnterLocked()
				if ahead {
					d.config.Observer.Pending(1)
				}
				return destination{on: on, ahead: ahead}, nil
			}
		}
	}
	lost := d.instances.HopelessLocked()
	switch {
	case lost != nil:
		return destination{}, backend.Unhealthy(lost.Name())
	case d.waiting.length >= d.config.MaxQueue || d.waiting.full(level):
		return destination{}, infer.Errorf(infer.Unavailable, "%sExceeds maximum queue size", req.LogPrefix())
	}
	d.census.EnterLocked()
	d.config.Observer.Pending(1)
	return destination{stirs: d.lineUpLocked(r), inTurn: d.takesTurns}, nil
}

// cancel ends a queued request, or tells the instance that has it.
func (d *Batcher) cancel(r *request) {
	d.mu.Lock()
	if r.queued {
		d.leaveLineLocked(r)
		then := d.recallIdleLocked()
		d.mu.Unlock()
		d.config.Observer.Pending(-1)
		d.fail(r, Canceled, canceled())
		then()
		return
	}
	var in backend.Instance
	if r.batch != nil && !r.ended {
		in = r.batch.on.Instance()
	}
	d.mu.Unlock()
	backend.Cancel(in, &r.task)
}

// cancelGone cancels requests whose clients disconnected while their batch was on its way to an
// instance: cancel found them in no line, and the instance did not have them yet.
func (d *Batcher) cancelGone(requests []*request) {
	for _, r := range requests {
		if r.task.Context.Err() != nil {
			d.cancel(r)
		}
	}
}

// Stop implements Scheduler.
func (d *Batcher) Stop(ctx context.Context) error {
	d.mu.Lock()
	if first, _ := d.census.StopLocked(); first {
		d.hold = 0
	}
	quiet := d.census.QuietLocked()
	d.mu.Unlock()
	d.dispatch() // batches no longer wait for more requests
	return Wait(ctx, quiet)
}

// Drain implements Scheduler.
func (d *Batcher) Drain(ctx context.Context) error {
	d.mu.Lock()
	quiet := d.census.QuietLocked()
	d.mu.Unlock()
	return Wait(ctx, quiet)
}

// InFlight implements Scheduler.
func (d *Batcher) InFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.census.InFlightLocked()
}
