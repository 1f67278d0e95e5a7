package ensemble

import (
	"context"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/processors"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
)

// flow is one request to an ensemble.
type flow struct {
	ensemble *Scheduler
	plan     *plan
	ctx      context.Context
	request  *infer.Request
	send     infer.Sender
	composed []Composed // by step
	label    sequenceLabel
	costs    infer.Costs
	start    int64 // when the request arrived
	began    int64 // when its first steps were submitted
	// done receives one value when the last response has been sent; nil for a submitted request.
	// moved receives one when the step in spun has ended.
	done, moved chan struct{}

	mu       sync.Mutex
	first    row
	runs     []stepRun      // of the first iteration
	slab     []infer.Tensor // inputs of runs
	later    map[int]*row   // later iterations with values; bound: charged
	made     []int          // responses with outputs, by decoupled step
	pending  int            // steps that are ready or held
	inflight int            // submitted steps
	held     []*stepRun     // steps that wait for their turn; bound: responses, which are charged
	err      *infer.Error
	last     *infer.Response // the final response, once known
	acting   bool
	spun     *stepRun // the last submitted step, for which the client's goroutine spins
	slots    slotHolder

	// Pending actions, in this order.
	freed  []*inflightLimiter // bound: steps that have ended
	out    []*infer.Response  // bound: charged
	ready  []*stepRun         // bound: responses, which are charged
	unread int                // index into ready
}

func newFlow(e *Scheduler, ctx context.Context, req *infer.Request, send infer.Sender) *flow {
	f := &flow{ensemble: e, ctx: ctx, request: req, send: send, start: backend.Now(), slots: slotHolder{keepsNoSlots: e.keepsNoSlots}}
	req.Queued(f.start)
	return f
}

// begin holds the models and passes the request's inputs to the first steps.
func (f *flow) begin() {
	e := f.ensemble
	f.plan = e.plan(f.request.Outputs)
	f.label = sequenceLabel{correlation: f.request.Correlation, flags: f.request.Flags}
	f.composed = make([]Composed, len(e.steps)) // bound: the config
	f.mu.Lock()
	if err := f.guarded(f.beginLocked); err != nil {
		f.failLocked(err)
	}
	f.actLocked()
}

// guarded calls a function and returns its panic as an error: it depends on the responses of
// models.
func (f *flow) guarded(what func() error) error {
	return panics.Run(f.ensemble.config.Log, panics.Request, what)
}

// hand sends a response.
func (f *flow) hand(r *infer.Response) {
	_ = f.guarded(func() error { f.send(r); return nil })
}

func (f *flow) beginLocked() error {
	e := f.ensemble
	for i := range e.steps {
		c, err := e.config.Composer.Hold(e.steps[i].Model, e.steps[i].Version)
		if err != nil {
			f.failLocked(err)
			break
		}
		f.composed[i] = c
	}
	f.began = backend.Now()
	if e.config.Decoupled {
		f.made = make([]int, len(e.steps)) // bound: the config
	}
	f.first.reset(f)
	f.runs = make([]stepRun, len(e.steps))     // bound: the config
	f.slab = make([]infer.Tensor, 0, e.widest) // bound: the config
	batch := int64(0)
	if e.config.Batches {
		batch = f.request.BatchSize
	}
	for i, name := range e.config.Inputs {
		v := value{state: null}
		if t := f.request.Input(name); t != nil {
			t.Retain()
			v = value{state: present, tensor: *t, batch: batch, label: &f.label}
		}
		f.setLocked(e.inputs[i], 0, v)
	}
	return nil
}

// wait waits for the last response, and spins as long as the instances ask for it.
func (f *flow) wait() {
	if f.request.Caller == nil {
		processors.Begin()
		defer processors.End()
	}
	for {
		f.mu.Lock()
		on := f.spun
		if on == nil {
			f.mu.Unlock()
			break
		}
		select {
		case <-f.moved:
		default:
		}
		f.mu.Unlock()
		on.awaiter.Await(f.moved)
		if len(f.moved) == 0 {
			break
		}
	}
	<-f.done
}

// setLocked sets the value of a tensor in an iteration. The flow takes ownership of it and retains
// its slot.
func (f *flow) setLocked(tensor, iteration int, v value) {
	v.left = f.plan.takers[tensor]
	if v.left == 0 || f.err != nil {
		v.tensor.Release()
		return
	}
	row, err := f.rowLocked(iteration)
	if err != nil {
		v.tensor.Release()
		f.failLocked(err)
		return
	}
	v.retain()
	row.values[tensor] = v
	row.live++
	for _, to := range f.plan.readers[tensor] {
		if row.lacks[to.step]--; row.lacks[to.step] == 0 {
			if err := f.prepareLocked(row, to.step, iteration); err != nil {
				f.failLocked(err)
				return
			}
		}
	}
	if f.plan.wanted[tensor] {
		if row.outputs--; row.outputs == 0 {
			if err := f.emitLocked(row); err != nil {
				f.failLocked(err)
				return
			}
		}
	}
	if row.live == 0 && iteration > 0 {
		delete(f.later, iteration)
		f.giveRowsLocked(1)
	}
}

// emitLocked creates the response of an iteration.
func (f *flow) emitLocked(row *row) error {
	e := f.ensemble
	// bound: the config
	response := &infer.Response{Outputs: make([]infer.Tensor, 0, len(f.plan.outputs))}
	var from *sequenceLabel
	for _, out := range f.plan.outputs {
		v := row.take(out.tensor)
		if v.state == null {
			e.config.Log.Debug().Msgf("Composing models did not output tensor %s", out.name)
			v.release()
			continue
		}
		v.tensor.Name = out.name
		if v.unlike(e.config.Batches) {
			v.tensor.Shape = v.converted(e.config.Batches, out.dims)
		}
		response.Outputs = append(response.Outputs, v.tensor) // bound: there is room
		if from == nil && v.made && len(v.tensor.Data) > 0 {
			from = v.label
		}
		response.Slot = first(response.Slot, v.slot)
		response.Held = first(response.Held, v.held)
	}
	if from != nil {
		response.Parameters = from.parameters()
	}
	if !e.config.Decoupled {
		f.last = response // sent when all steps have ended: they may still read the inputs
		return nil
	}
	if err := e.take(e.sizes.out); err != nil {
		response.Release()
		return err
	}
	f.out = append(f.out, response)
	return nil
}

// failLocked records the first error of the request. No further step begins.
func (f *flow) failLocked(err error) {
	if f.err == nil {
		own := infer.AsError(err)
		f.err = &infer.Error{Code: own.Code, OutOfMemory: own.OutOfMemory, Message: "in ensemble '" + f.ensemble.config.Model + "', " + own.Message}
	}
	for _, run := range slices.Clone(f.held) { // bound: responses, which are charged
		if run.limiter().withdraw(run) {
			f.dropLocked(run)
		}
	}
	f.releaseRowsLocked()
}

// releaseRowsLocked releases the values that wait for others, with their slots: the models that
// wait for these slots could not end otherwise.
func (f *flow) releaseRowsLocked() {
	f.first.release()
	for _, row := range f.later {
		row.release()
	}
	f.giveRowsLocked(len(f.later))
	clear(f.later)
}

// actLocked performs pending actions until none is left, unless another goroutine does so already.
// It is called with mu held and returns without it.
func (f *flow) actLocked() {
	e := f.ensemble
	if f.acting {
		f.mu.Unlock()
		return
	}
	f.acting = true
	for {
		switch {
		case len(f.freed) > 0:
			l := f.freed[len(f.freed)-1]
			f.freed = f.freed[:len(f.freed)-1]
			f.mu.Unlock()
			l.free()
			f.mu.Lock()
		case len(f.out) > 0:
			response := f.out[0]
			f.out = f.out[1:]
			if f.idleLocked() { // it is the last one
				f.last = response
				e.give(e.sizes.out) // as part of the flow it remains charged
				continue
			}
			f.mu.Unlock()
			f.hand(response)
			e.give(e.sizes.out)
			f.mu.Lock()
		case f.unread < len(f.ready):
			run := f.ready[f.unread]
			f.unread++
			if f.unread == len(f.ready) {
				f.ready, f.unread = f.ready[:0], 0
			}
			f.dispatchLocked(run)
		case f.idleLocked():
			f.mu.Unlock() // no event follows: acting stays set
			f.conclude()
			return
		default:
			f.acting = false
			f.mu.Unlock()
			return
		}
	}
}

// idleLocked reports whether no action and no step is pending.
func (f *flow) idleLocked() bool {
	return f.inflight == 0 && f.pending == 0 && len(f.out) == 0 && len(f.freed) == 0
}

// conclude sends the last response when no step is in flight.
func (f *flow) conclude() {
	e := f.ensemble
	last := f.last
	switch {
	case f.err != nil:
		if last != nil {
			last.Release()
		}
		last = infer.ErrorResponse(f.err)
	case last != nil:
		last.Final = true
	case e.config.Decoupled:
		last = &infer.Response{Empty: true, Final: true}
	default:
		last = infer.ErrorResponse(infer.Errorf(infer.InvalidArg,
			"in ensemble '%s', %sunexpected deadlock, at least one output is not set while no more ensemble steps can be made",
			e.config.Model, f.request.LogPrefix()))
	}
	f.closeSlots()
	f.mu.Lock()
	f.releaseRowsLocked()
	f.mu.Unlock()
	f.count(last.Err == nil)
	f.hand(last)
	for _, c := range f.composed {
		if c != nil {
			c.Release()
		}
	}
	e.give(e.size(f.plan != e.whole))
	e.end()
	if f.done != nil {
		f.done <- struct{}{}
	}
}

// count reports the costs of the request. The summed times of its steps may exceed the elapsed
// time.
func (f *flow) count(ok bool) {
	observer := f.ensemble.config.Observer
	if !ok { // twice, as Triton does and its clients expect
		observer.Failed(scheduler.OtherFailure, f.start)
		observer.Failed(scheduler.OtherFailure, f.start)
		return
	}
	input, infer, output := f.costs.Input.Load(), f.costs.Infer.Load(), f.costs.Output.Load()
	now := backend.Now()
	report := backend.Report{Executed: true, End: now, ComputeEnd: now - output, ComputeStart: now - output - infer, Start: now - output - infer - input}
	if c := f.request.Costs; c != nil { // the request is a step of another ensemble
		c.Add(input, infer, output)
	}
	observer.Executed(&scheduler.Execution{
		Requests: []scheduler.Timing{{BatchSize: f.request.BatchSize, Start: f.start, Queued: report.Start - (f.began - f.start)}},
		Report:   report,
	})
}
