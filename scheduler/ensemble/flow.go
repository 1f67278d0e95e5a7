package ensemble

import (
	"context"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
)

// flow is one request on its way through an ensemble.
type flow struct {
	ensemble *Scheduler
	plan     *plan
	ctx      context.Context
	request  *infer.Request
	send     infer.Sender
	composed []Composed // by step
	label    sequenceLabel
	costs    infer.Costs
	start    int64 // of the request
	began    int64 // its first steps
	// done receives one value when the last response has been handed up; nil if
	// Submit made the flow. moved receives one when the step in spun has ended.
	done, moved chan struct{}

	mu       sync.Mutex
	first    row
	runs     []stepRun      // of the first iteration
	slab     []infer.Tensor // for their inputs
	later    map[int]*row   // of iterations after the first that have values
	made     []int          // of each step that is decoupled: its responses with outputs
	pending  int            // steps that are ready, or wait for their turn
	inflight int            // steps that have been submitted and not ended
	held     []*stepRun     // that wait for their turn
	err      *infer.Error
	last     *infer.Response // the final response, as far as it is known
	acting   bool
	spun     *stepRun // that the client's goroutine spins for: the one submitted last
	window   window

	// What is to be done, in this order.
	freed  []*inflightLimiter
	out    []*infer.Response
	ready  []*stepRun
	unread int // of ready: those before have been taken
}

func newFlow(e *Scheduler, ctx context.Context, req *infer.Request, send infer.Sender) *flow {
	f := &flow{ensemble: e, ctx: ctx, request: req, send: send, start: backend.Now(), window: window{loose: e.loose}}
	req.Queued(f.start)
	return f
}

// begin holds the models and gives the first steps their inputs.
func (f *flow) begin() {
	e := f.ensemble
	f.plan = e.plan(f.request.Outputs)
	f.label = sequenceLabel{correlation: f.request.Correlation, flags: f.request.Flags}
	f.composed = make([]Composed, len(e.steps))
	f.mu.Lock()
	if err := f.guarded(f.beginLocked); err != nil {
		f.failLocked(err)
	}
	f.actLocked()
}

// guarded calls what and makes a panic an error: the code that it calls depends on
// what models respond.
func (f *flow) guarded(what func() error) error {
	return panics.Run(f.ensemble.config.Log, panics.Request, what)
}

// hand hands a response up.
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
		f.made = make([]int, len(e.steps))
	}
	f.first.reset(f)
	f.runs = make([]stepRun, len(e.steps))
	f.slab = make([]infer.Tensor, 0, e.widest)
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

// wait waits for the last response, actively as long as the instances say so.
func (f *flow) wait() {
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

// setLocked gives a tensor its value of an iteration, which belongs to the flow
// from now on; its slot is retained.
func (f *flow) setLocked(tensor, iteration int, v value) {
	v.left = f.plan.takers[tensor]
	if v.left == 0 || f.err != nil {
		v.tensor.Release()
		return
	}
	row := f.rowLocked(iteration)
	if v.slot != nil {
		v.slot.Retain()
	}
	row.values[tensor] = v
	row.live++
	for _, to := range f.plan.readers[tensor] {
		if row.lacks[to.step]--; row.lacks[to.step] == 0 {
			f.prepareLocked(row, to.step, iteration)
		}
	}
	if f.plan.wanted[tensor] {
		if row.outputs--; row.outputs == 0 {
			f.emitLocked(row)
		}
	}
	if row.live == 0 && iteration > 0 {
		delete(f.later, iteration)
	}
}

// emitLocked makes the response of an iteration.
func (f *flow) emitLocked(row *row) {
	e := f.ensemble
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
		response.Outputs = append(response.Outputs, v.tensor)
		if from == nil && v.made && len(v.tensor.Data) > 0 {
			from = v.label
		}
		switch {
		case v.slot == nil:
		case response.Slot == nil:
			response.Slot = v.slot
		default:
			v.slot.Release()
		}
	}
	if from != nil {
		response.Parameters = from.parameters()
	}
	if !e.config.Decoupled {
		f.last = response // when all steps have ended: they may still read the inputs
		return
	}
	f.out = append(f.out, response)
}

// failLocked notes why the request fails, the first time it does. No further step is begun.
func (f *flow) failLocked(err error) {
	if f.err == nil {
		own := infer.AsError(err)
		f.err = &infer.Error{Code: own.Code, NoRoom: own.NoRoom, Message: "in ensemble '" + f.ensemble.config.Model + "', " + own.Message}
	}
	for _, run := range slices.Clone(f.held) {
		if run.limiter().withdraw(run) {
			f.dropLocked(run)
		}
	}
	f.releaseRowsLocked()
}

// releaseRowsLocked gives up the values that wait for others. With them go their
// places in the windows of models, which could not end without.
func (f *flow) releaseRowsLocked() {
	f.first.release()
	for _, row := range f.later {
		row.release()
	}
	clear(f.later)
}

// actLocked does what is to be done until nothing is, unless another goroutine does
// it already. It is called with mu held, and returns without.
func (f *flow) actLocked() {
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
				continue
			}
			f.mu.Unlock()
			f.hand(response)
			f.mu.Lock()
		case f.unread < len(f.ready):
			run := f.ready[f.unread]
			f.unread++
			if f.unread == len(f.ready) {
				f.ready, f.unread = f.ready[:0], 0
			}
			f.dispatchLocked(run)
		case f.idleLocked():
			f.mu.Unlock() // nothing more comes: acting stays set
			f.conclude()
			return
		default:
			f.acting = false
			f.mu.Unlock()
			return
		}
	}
}

// idleLocked reports whether nothing is to come and nothing to be done.
func (f *flow) idleLocked() bool {
	return f.inflight == 0 && f.pending == 0 && len(f.out) == 0 && len(f.freed) == 0
}

// conclude hands up the last response, when no step is under way.
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
	f.closeWindow()
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
	e.end()
	if f.done != nil {
		f.done <- struct{}{}
	}
}

// count reports what the request cost. The times of its steps are summed up, and
// may be more than have passed.
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
	if c := f.request.Costs; c != nil { // it is a step itself
		c.Add(input, infer, output)
	}
	observer.Executed(&scheduler.Execution{
		Requests: []scheduler.Timing{{BatchSize: f.request.BatchSize, Start: f.start, Queued: report.Start - (f.began - f.start)}},
		Report:   report,
	})
}
