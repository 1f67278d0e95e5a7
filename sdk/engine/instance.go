package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/sdk"
	"github.com/nereid-serving/nereid/sdk/internal/execution"
)

// InstanceSpec describes one instance of a model.
type InstanceSpec struct {
	Name             string
	Kind             string // "CPU", "GPU" or "MODEL"
	Device           int32  // the number of its GPU, 0 elsewhere
	Profiles         []string
	SecondaryDevices []sdk.SecondaryDevice
	Passive          bool
	HostPolicy       string // JSON
	// Next waits for the next batch and returns it, or nil at the end. The instance's goroutine calls
	// it, so that Execute is called without a switch of goroutines. at is the arrival time if Next has
	// read the clock and returned at once, and counts as the time at which Execute is called; else it
	// is 0. If Next is nil, batches arrive through Execute.
	Next func() (b *backend.Batch, at int64)
}

// Instance runs an author's instance. It implements backend.Instance and backend.Canceller; Close
// comes last.
type Instance struct {
	model   *Model
	name    string
	log     string // for texts
	env     *sdk.InstanceEnv
	tracker *execution.Tracker
	next    func() (*backend.Batch, int64) // InstanceSpec.Next

	life   context.Context
	cancel context.CancelFunc

	instance sdk.Instance // set before Model.Instance returns
	ready    sdk.Readier  // nil if it does not say whether it is ready
	closing  bool         // its Close has been called; of the instance's goroutine

	// batches has room for the batch that Execute may hand over while Done of the previous one is
	// called. Execute sends, and Close closes, under mu.
	batches chan work
	mu      sync.Mutex
	closed  bool

	hurry chan struct{} // closed, once, when requests are not waited for any more
	once  sync.Once     // of hurry
	ended chan struct{} // closed when nothing of the instance is left
}

var _ backend.Instance = (*Instance)(nil)

// work is a batch on its way to the instance's goroutine.
type work struct {
	batch *backend.Batch
	// When the instance took the batch, and when the author's Execute is called; 0 means that the
	// clock is read at that time.
	begun, started int64
}

// Instance creates an instance. A separate goroutine calls all of the author's hooks of the
// instance except Ready. Complete or Start must have returned. If ctx is cancelled, Instance
// returns, and an instance that NewInstance returns later is closed.
func (m *Model) Instance(ctx context.Context, p InstanceSpec) (*Instance, error) {
	if !m.backend.attributes.ParallelInstances {
		select {
		case m.making <- struct{}{}:
		case <-ctx.Done():
			return nil, infer.AsError(context.Cause(ctx))
		}
	}
	in := m.newInstance(p)
	m.alive.add()
	outcome := make(chan error, 1) // one value, from the goroutine
	panics.Go(m.backend.env.Own, panics.Life, func() {
		made := false
		defer func() {
			if made {
				return
			}
			// An author's function has ended this goroutine by runtime.Goexit.
			if !m.backend.attributes.ParallelInstances {
				<-m.making
			}
			in.cancel()
			in.end()
			outcome <- m.backend.gone("NewInstance", in.log)
		}()
		err := in.open()
		made = true
		if !m.backend.attributes.ParallelInstances {
			<-m.making
		}
		if err != nil {
			in.cancel()
			in.end()
		}
		outcome <- err
		if err == nil {
			in.run()
		}
	}, nil)
	select {
	case err := <-outcome:
		if err != nil {
			return nil, err
		}
		return in, nil
	case <-ctx.Done():
	}
	in.leave()
	in.Hurry()
	in.cancel()
	return nil, infer.AsError(context.Cause(ctx))
}

func (m *Model) newInstance(p InstanceSpec) *Instance {
	b := m.backend
	in := &Instance{
		model: m, name: p.Name, log: m.log + ", instance '" + p.Name + "'", next: p.Next,
		batches: make(chan work, 1), hurry: make(chan struct{}), ended: make(chan struct{}),
	}
	in.life, in.cancel = context.WithCancel(context.Background())
	c := m.config.Load().parsed
	sequences := c.GetSequenceBatching()
	outputs := make(map[string]bool)
	for _, o := range c.GetOutput() {
		outputs[o.GetName()] = true
	}
	for _, s := range sequences.GetState() {
		outputs[s.GetOutputName()] = true
	}
	var gpu int32
	if p.Kind == "GPU" {
		gpu = 1 + p.Device
	}
	in.tracker = execution.New(execution.Config{
		Backend: b.env.Name, Model: m.version.Name, Instance: p.Name, Life: in.life,
		Decoupled: m.decoupled(), Sequences: sequences != nil, Iterative: sequences.GetIterativeSequence(),
		Outputs: outputs, Allocate: b.env.Allocate, AnswersFirst: b.env.AnswersFirst, Later: b.env.Later, Trace: b.env.Trace, Activity: b.env.Activity, Window: b.env.Window, GPU: gpu,
		Fault: func(text string) { b.env.Own.Error().Msg(text) }, Log: b.env.Own,
	})
	in.env = &sdk.InstanceEnv{
		Name: p.Name, Kind: p.Kind, Device: p.Device, Profiles: slices.Clone(p.Profiles), SecondaryDevices: slices.Clone(p.SecondaryDevices),
		Passive: p.Passive, HostPolicy: p.HostPolicy, Model: m.env, Log: m.env.Log, Statistics: &statistics{in.tracker, m.version.Responses},
	}
	return in
}

// open calls NewInstance.
func (in *Instance) open() error {
	m := in.model
	m.mu.Lock()
	model := m.model
	m.mu.Unlock()
	if model == nil {
		return infer.Errorf(infer.Unavailable, "model '%s' is being unloaded", m.version.Name)
	}
	err := m.backend.hook("NewInstance", in.log, func() (err error) {
		in.instance, err = model.NewInstance(in.env)
		return err
	})
	if err == nil && in.instance == nil {
		err = infer.Errorf(infer.Internal, "backend '%s', %s: NewInstance returned no instance", m.backend.env.Name, in.log)
	}
	in.ready, _ = in.instance.(sdk.Readier)
	return err
}

// run executes batches until the instance is closed, and ends it.
func (in *Instance) run() {
	finished := false
	defer func() {
		if !finished { // an author's function has ended this goroutine, by runtime.Goexit
			if in.closing {
				_ = in.model.backend.gone("Instance.Close", in.log)
			}
			panics.Go(in.model.backend.env.Own, panics.Life, in.run, nil)
		}
	}()
	if !in.closing { // else it is Close that has ended the goroutine before this one
		for w, ok := in.take(); ok; w, ok = in.take() {
			in.execute(w)
		}
		in.closing = true
		in.tracker.Settle(in.hurry)
		_ = in.model.backend.hook("Instance.Close", in.log, func() error {
			in.instance.Close()
			return nil
		})
	}
	in.tracker.End()
	in.cancel()
	finished = true
	in.end()
}

// end records that nothing of the instance is left.
func (in *Instance) end() {
	in.model.alive.done() // first: who waits for ended may look
	close(in.ended)
}

// take waits for the next batch; false at the end.
func (in *Instance) take() (w work, ok bool) {
	if in.next == nil {
		w, ok = <-in.batches
		return w, ok
	}
	b, at := in.next()
	return work{b, at, at}, b != nil
}

// lent is the author's view of a batch of one request.
type lent struct {
	requests [1]execution.Request
	list     [1]*sdk.Request
}

// execute calls Execute for a batch.
func (in *Instance) execute(w work) {
	var requests []execution.Request
	var list []*sdk.Request
	if n := len(w.batch.Tasks); n == 1 {
		one := &lent{}
		requests, list = one.requests[:], one.list[:]
	} else {
		requests, list = make([]execution.Request, n), make([]*sdk.Request, n)
	}
	for i := range requests {
		list[i] = (*sdk.Request)(&requests[i])
	}
	b := in.tracker.Begin(w.batch, requests, w.begun, w.started)
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			b.Returned(requests, in.model.backend.panicked("Execute", in.log, value), true)
			return
		}
		b.Returned(requests, in.model.backend.gone("Execute", in.log), true)
	}()
	failure := execution.Failure(in.instance.Execute(b.Context(), list))
	returned = true
	b.Returned(requests, failure, false)
}

// Name implements backend.Instance.
func (in *Instance) Name() string { return in.name }

// Execute implements backend.Instance.
func (in *Instance) Execute(b *backend.Batch) {
	if !in.hand(work{batch: b, begun: backend.Now()}) {
		b.Done(b, backend.Report{Refused: true})
	}
}

// hand passes a batch to the goroutine. It returns false if the instance accepts none.
func (in *Instance) hand(w work) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return false
	}
	select {
	case in.batches <- w:
		return true
	default:
		return false // the caller has not waited for Done
	}
}

// AsksReady reports whether the author's instance reports its own readiness.
func (in *Instance) AsksReady() bool { return in.ready != nil }

// Ready implements backend.Instance.
func (in *Instance) Ready(ctx context.Context) error {
	select {
	case <-in.ended:
		return backend.Unhealthy(in.name)
	default:
	}
	if in.ready == nil {
		return nil
	}
	return in.model.backend.apart("Ready", in.log, func() error { return in.ready.Ready(ctx) })
}

// Capabilities implements backend.Instance.
func (in *Instance) Capabilities() backend.Capabilities { return backend.Capabilities{Canceller: in} }

// Cancel implements backend.Canceller: the context of the task has ended. The model's calls for its
// batch are cancelled with the last task of the batch.
func (in *Instance) Cancel(task *backend.Task) { in.model.calls.cancelFor(task) }

// Open returns the number of requests that the instance has kept after their Execute.
func (in *Instance) Open() int { return in.tracker.Open() }

// leave lets the goroutine end after its remaining batches.
func (in *Instance) leave() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		close(in.batches)
	}
}

// closeGrace is how long an Execute may take to return after its context has ended.
const closeGrace = time.Second

// Close executes the instance's remaining batches, waits for the responses to the requests that it
// has kept, and closes it. It is called once. When ctx ends, so does the context of Execute. If the
// author's code does not return then, its requests get an error, and its goroutine is left behind,
// which the error of Close states.
func (in *Instance) Close(ctx context.Context) error {
	in.leave()
	select {
	case <-in.ended:
		return nil
	case <-ctx.Done():
	}
	in.Hurry()
	in.cancel()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-in.ended:
		return nil
	case <-grace.C:
	}
	failure := infer.Errorf(infer.Unavailable, "%s was closed while it executed the request", in.log)
	in.tracker.Break(failure)
	in.tracker.End()
	in.model.backend.env.Own.Error().Msgf("backend '%s': %s does not return, its goroutine keeps running", in.model.backend.env.Name, in.log)
	return fmt.Errorf("%s does not return: %w", in.log, context.Cause(ctx))
}

// Hurry ends the wait for requests that the instance has kept: it is closed after its batches, and
// the remaining requests get an error.
func (in *Instance) Hurry() { in.once.Do(func() { close(in.hurry) }) }

// Ended returns a channel that is closed when nothing of the instance is left.
func (in *Instance) Ended() <-chan struct{} { return in.ended }

// statistics implements sdk.Statistics.
type statistics struct {
	tracker   *execution.Tracker
	responses func(backend.ResponseReport)
}

// Request implements sdk.Statistics.
func (s *statistics) Request(r *sdk.Request, success bool, t sdk.Times) error {
	return (*execution.Request)(r).Report(success, t.ExecStart, t.ComputeStart, t.ComputeEnd, t.ExecEnd)
}

// Batch implements sdk.Statistics.
func (s *statistics) Batch(_ int, t sdk.Times) error {
	return s.tracker.Report(t.ExecStart, t.ComputeStart, t.ComputeEnd, t.ExecEnd)
}

// Response implements sdk.Statistics.
func (s *statistics) Response(_ *sdk.ResponseFactory, index int, start, outputStart, end int64, failure error) error {
	switch {
	case index < 0:
		return infer.Errorf(infer.InvalidArg, "the index of a response is %d, want 0 or more", index)
	case outputStart > 0 && start > outputStart:
		return errors.New("Response start cannot happen after compute output start")
	case outputStart > end:
		return errors.New("Compute output start cannot happen after response end")
	case start > end:
		return errors.New("Response start cannot happen after response end")
	}
	if s.responses == nil {
		return nil
	}
	r := backend.ResponseReport{Index: index, Start: start, OutputStart: max(outputStart, 0), End: end}
	switch {
	case execution.Failure(failure) == nil:
	case execution.Failure(failure).Code == infer.Cancelled:
		r.Outcome = backend.ResponseCancelled
	default:
		r.Outcome = backend.ResponseFailed
	}
	s.responses(r)
	return nil
}
