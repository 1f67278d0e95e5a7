package ensemble

import (
	"context"
	"slices"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/scheduler"
)

// stepRun is one request of a step.
type stepRun struct {
	flow      *flow
	step      int
	iteration int
	request   infer.Request
	label     *sequenceLabel
	slot      infer.Memory // of the response that its inputs come from
	held      infer.Memory // charges such a response, see value

	// Guarded by the flow's mu.
	awaiter   backend.Awaiter
	responded bool
	over      bool
	turn      bool // its turn has come
	counted   bool // by the in-flight limiter

	stop  func() bool // ends the watch over the context while the step is held
	timer *time.Timer

	// Guarded by the in-flight limiter's mu.
	scheduler.Neighbours[*stepRun] // in its queue

	queued bool
}

func (run *stepRun) limiter() *inflightLimiter { return run.flow.ensemble.limiters[run.step] }

// prepareLocked creates the request of a step whose inputs are complete.
func (f *flow) prepareLocked(row *row, step, iteration int) error {
	s := &f.ensemble.steps[step]
	run := &f.runs[step]
	if run.flow != nil || iteration > 0 {
		if err := f.ensemble.take(f.ensemble.sizes.runs[step]); err != nil {
			return err
		}
		run = &stepRun{}
	}
	run.flow, run.step, run.iteration = f, step, iteration
	r := &run.request
	r.Inputs = f.room(len(s.inputs))
	whole := false
	defer func() {
		if !whole { // after a panic caused by a shape
			run.releaseLocked()
		}
	}()
	c := f.composed[step]
	for i, tensor := range s.inputs {
		v := row.take(tensor)
		run.slot, run.held = first(run.slot, v.slot), first(run.held, v.held)
		if v.state == null {
			continue
		}
		v.tensor.Name = s.Inputs[i].Name
		r.Inputs = append(r.Inputs, v.tensor) // bound: there is room
		if v.unlike(c.Batches()) {
			r.Inputs[len(r.Inputs)-1].Shape = v.converted(c.Batches(), c.Dims(s.Inputs[i].Name))
		}
		run.take(v.label)
	}
	if run.label == nil {
		run.label = &f.label
	}
	whole = true
	if run.slot != nil {
		f.occupyLocked(run)
	}
	r.Model, r.Version, r.ID = s.Model, s.Version, f.request.ID
	r.Correlation, r.Flags = run.label.correlation, run.label.flags
	r.Priority, r.TimeoutMicros, r.Parameters = f.request.Priority, f.request.TimeoutMicros, f.request.Parameters
	r.Outputs, r.Caller, r.Costs = s.wants, f.request.Caller, &f.costs
	r.Places = f.stay(step)
	r.Trace = f.request.Trace.Child()
	f.pending++
	f.ready = append(f.ready, run)
	return nil
}

// stay returns the outputs of a step that may stay on devices: only steps read them, and all of
// these accept tensors on devices.
//
// bound: the config
func (f *flow) stay(step int) (places []infer.Place) {
	s := &f.ensemble.steps[step]
	for i, tensor := range s.outputs {
		readers := f.plan.readers[tensor]
		if len(readers) == 0 || f.plan.wanted[tensor] {
			continue
		}
		stays := true
		for _, r := range readers {
			stays = stays && f.composed[r.step].TakesDevices()
		}
		if stays {
			places = append(places, infer.Place{Output: s.Outputs[i].Name, OnDevice: true})
		}
	}
	return places
}

// room returns an empty slice with capacity for n inputs.
//
// bound: the config
func (f *flow) room(n int) []infer.Tensor {
	used := len(f.slab)
	if n > cap(f.slab)-used {
		return make([]infer.Tensor, 0, n)
	}
	f.slab = f.slab[:used+n]
	return f.slab[used : used : used+n]
}

// dispatchLocked submits a ready step or holds it. It unlocks mu meanwhile.
func (f *flow) dispatchLocked(run *stepRun) {
	if f.err == nil && f.ctx.Err() != nil {
		f.failLocked(&infer.Error{Code: infer.Cancelled})
	}
	if f.err != nil {
		f.dropLocked(run)
		return
	}
	if l := run.limiter(); l.limit > 0 && !run.turn {
		if !l.enter(run) {
			f.holdLocked(run)
			return
		}
		run.turn, run.counted = true, true
	}
	f.pending--
	f.inflight++
	f.mu.Unlock()
	var awaiter backend.Awaiter
	err := f.guarded(func() (err error) {
		awaiter, err = f.composed[run.step].Submit(f.ctx, &run.request, run.respond)
		return err
	})
	f.mu.Lock()
	switch {
	case err != nil && run.over: // a panic after its last response
	case err != nil:
		f.failLocked(err)
		f.endLocked(run)
	case !run.over && awaiter != nil && f.moved != nil:
		run.awaiter, f.spun = awaiter, run
	}
}

// holdLocked makes a step wait for its turn, until patienceTurn has passed or its client
// disconnects.
func (f *flow) holdLocked(run *stepRun) {
	f.held = append(f.held, run)
	leave := func() bool {
		if !run.limiter().withdraw(run) {
			return false
		}
		f.granted(run, false)
		return true
	}
	e := f.ensemble
	run.timer = panics.AfterFunc(e.config.Log, panics.Scheduler, patienceTurn, func() {
		if leave() {
			e.config.Log.Error().Msgf("step '%s' of ensemble '%s' has waited %s for its turn (max_inflight_requests is %d), and starts without it",
				e.steps[run.step].Model, e.config.Model, patienceTurn, run.limiter().limit)
		}
	}, nil)
	run.stop = context.AfterFunc(f.ctx, panics.Guard(e.config.Log, panics.Scheduler, func() { leave() }, nil))
}

// granted continues a step that was held.
func (f *flow) granted(run *stepRun, counted bool) {
	f.mu.Lock()
	f.unholdLocked(run)
	run.turn, run.counted = true, counted
	f.ready = append(f.ready, run)
	f.actLocked()
}

func (f *flow) unholdLocked(run *stepRun) {
	if at := slices.Index(f.held, run); at >= 0 {
		f.held = slices.Delete(f.held, at, at+1)
	}
	if run.timer != nil {
		run.timer.Stop()
		run.stop()
	}
}

// dropLocked gives up a step that has not been submitted.
func (f *flow) dropLocked(run *stepRun) {
	f.unholdLocked(run)
	f.pending--
	run.releaseLocked()
}

// endLocked records the end of a step.
func (f *flow) endLocked(run *stepRun) {
	run.over = true
	f.inflight--
	run.releaseLocked()
	if f.spun == run {
		f.spun = nil
		select {
		case f.moved <- struct{}{}:
		default:
		}
	}
}

func (run *stepRun) releaseLocked() {
	for i := range run.request.Inputs {
		run.request.Inputs[i].Release()
	}
	f := run.flow
	if run.slot != nil {
		f.vacateLocked(run)
	}
	release(run.held)
	run.held = nil
	if run != &f.runs[run.step] {
		f.ensemble.give(f.ensemble.sizes.runs[run.step])
	}
	if run.counted {
		f.freed = append(f.freed, run.limiter())
	}
}

// respond is the Sender of the step's request.
func (run *stepRun) respond(r *infer.Response) {
	f := run.flow
	final := r.Final
	f.mu.Lock()
	f.slots.moves++
	switch {
	case r.Err != nil:
		f.failLocked(r.Err)
	case !r.Empty && f.err == nil:
		if err := f.guarded(func() error { f.receiveLocked(run, r); return nil }); err != nil {
			f.failLocked(err)
		}
	}
	r.Release()
	if final {
		f.endLocked(run)
	}
	f.actLocked()
}

// receiveLocked takes over the outputs of a response. Missing outputs become null.
func (f *flow) receiveLocked(run *stepRun, r *infer.Response) {
	s := &f.ensemble.steps[run.step]
	iteration := run.iteration
	switch {
	case s.Decoupled:
		iteration = f.made[run.step]
		f.made[run.step]++
	case run.responded:
		return // the model became decoupled after the ensemble was loaded
	}
	run.responded = true
	label, err := run.label.overridden(r.Parameters)
	if err != nil {
		f.failLocked(err)
		return
	}
	slot := r.Slot
	if slot == nil {
		slot = run.slot
	}
	var held infer.Memory
	if iteration > 0 {
		held = r.Held
	}
	batch := int64(0)
	if f.composed[run.step].Batches() {
		batch = run.request.BatchSize
	}
	for i, l := range s.Outputs {
		v := value{state: null, made: true, label: label, slot: slot, held: held}
		for j := range r.Outputs {
			if t := &r.Outputs[j]; t.Name == l.Name {
				v.state, v.tensor, v.batch = present, *t, batch
				t.Name, t.Memory = "", nil // now owned by the value
				break
			}
		}
		f.setLocked(s.outputs[i], iteration, v)
	}
}
