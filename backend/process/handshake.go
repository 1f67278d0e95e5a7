package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// handshake tracks the messages between the start of a process and its first batch, and at its end.
// The reader of the ring sends to the channels, which have room for every value; the life's own
// goroutine receives.
type handshake struct {
	heap *frames.Heap // of the life
	// told is the last request that the process was sent. The name tables are made before it is
	// toldInitialize.
	told        atomic.Uint32
	seen        phase      // guarded by the receive lock
	hello       chan error // receives one value: HELLO came
	completed   chan error // receives one value: nil, or why auto_complete_config failed
	completion  []byte     // the config that the model completed; set before completed receives
	initialized chan error // receives one value: nil, or why the model failed
	asks        bool       // the model has is_ready; set before initialized receives
	// over is closed when the process has ended the model, or has failed to start it.
	over     chan struct{}
	overOnce sync.Once
}

func (h *handshake) begin(heap *frames.Heap) {
	h.heap = heap
	h.hello, h.completed, h.initialized = make(chan error, 1), make(chan error, 1), make(chan error, 1)
	h.over = make(chan struct{})
}

// phase is the last message that the process has sent.
type phase uint8

const (
	phaseStarted phase = iota
	phaseHello
	phaseCompleted
	phaseInitialized
	phaseFinalized
)

// phases are the phases that frames begin.
var phases = map[ipc.Kind]phase{
	ipc.Hello: phaseHello, ipc.Completed: phaseCompleted, ipc.Initialized: phaseInitialized, ipc.Finalized: phaseFinalized,
}

// The requests that a stub was sent.
const (
	toldNothing uint32 = iota
	toldAutoComplete
	toldInitialize
)

// allows reports whether the process may send a frame of this kind now. The caller holds the
// receive lock.
func (h *handshake) allows(kind ipc.Kind) bool {
	switch kind {
	case ipc.Hello:
		return h.seen == phaseStarted
	case ipc.Completed:
		return h.seen == phaseHello && h.told.Load() == toldAutoComplete
	case ipc.Initialized:
		return (h.seen == phaseHello || h.seen == phaseCompleted) && h.told.Load() == toldInitialize
	case ipc.Executed, ipc.Response, ipc.Infer, ipc.Finalized:
		return h.seen == phaseInitialized
	case ipc.Demand, ipc.StopInfer, ipc.ReadyAnswer, ipc.Mapped, ipc.Lend, ipc.Unlend:
		return h.seen >= phaseInitialized
	case ipc.Released, ipc.Log, ipc.Call, ipc.Metric:
		return h.seen >= phaseHello
	case ipc.Name:
		return h.told.Load() == toldInitialize
	}
	return false
}

// receive handles a frame that advances the handshake and that allows has accepted. The caller
// holds the receive lock.
func (h *handshake) receive(f ipc.Frame) error {
	h.seen = phases[f.Kind]
	var body struct {
		Error   string `msgpack:"error"`
		Config  string `msgpack:"config"`   // of COMPLETED
		IsReady bool   `msgpack:"is_ready"` // of INITIALIZED
	}
	charged, err := frames.DecodeMap(h.heap, f, &body)
	if err != nil {
		return err
	}
	defer h.heap.Give(charged)
	var failure error // one of finalize is in the log already, with its traceback
	if body.Error != "" {
		failure = infer.Errorf(infer.Internal, "%s", body.Error)
	}
	if f.Kind == ipc.Finalized || f.Kind != ipc.Hello && failure != nil {
		h.overOnce.Do(func() { close(h.over) })
	}
	switch f.Kind {
	case ipc.Hello:
		h.hello <- nil
	case ipc.Completed:
		if failure == nil && body.Config != "" {
			h.completion = []byte(body.Config) // bound: frames.MaxMap
		}
		h.completed <- failure
	case ipc.Initialized:
		h.asks = body.IsReady
		h.initialized <- failure
	}
	return nil
}

// greet waits for HELLO.
func (l *life) greet(ctx context.Context) error {
	if err := l.await(ctx, l.hello, l.in.model.settings.StubTimeout, "say HELLO"); err != nil {
		return err
	}
	if err := l.channel.Attached(); err != nil {
		return fmt.Errorf("unlink shared memory: %w", err)
	}
	return nil
}

// initialize waits for HELLO if that has not come, sends INITIALIZE and waits for INITIALIZED.
func (l *life) initialize(ctx context.Context) error {
	if l.told.Load() == toldNothing {
		if err := l.greet(ctx); err != nil {
			return err
		}
	}
	if err := l.setNames(l.in.model.tensorNames()); err != nil {
		return err
	}
	if l.in.model.TakesDevices() {
		l.encoder.TakesDevices = true
	}
	l.decoupled, l.maxBatch = l.in.model.decoupled(), int(l.in.model.config.GetMaxBatchSize())
	l.told.Store(toldInitialize)
	l.hear(true)
	question := l.initialization()
	if err := l.ask(ipc.Initialize, l.in.model.program.Initialize(l.in.spec(), question)); err != nil {
		return err
	}
	if levels := l.in.model.supervisor.levels(); levels != question.Log {
		// The levels have changed, and their LOG_SETTINGS may have been sent before INITIALIZE.
		if err := l.ask(ipc.LogSettings, levels); err != nil {
			return err
		}
	}
	return l.await(ctx, l.initialized, l.in.model.settings.InitializeTimeout, "initialize its model")
}

// setNames creates the tables of tensor names.
func (l *life) setNames(inputs, outputs []string) error {
	told, err := frames.NewNames(inputs, outputs)
	if err != nil {
		return err
	}
	heard, err := frames.NewNames(inputs, outputs)
	if err != nil {
		return err
	}
	l.encoder.Names = told
	l.decoder.Names = heard
	return nil
}

// ask sends a frame whose body is a map.
func (l *life) ask(kind ipc.Kind, fields any) error {
	body, err := frames.EncodeMap(kind, fields)
	if err != nil {
		return err
	}
	return l.encoder.Send(kind, 0, body)
}

// readiness asks a process whether its model is ready: one question at a time, whose response all
// callers share.
type readiness struct {
	mu     sync.Mutex // held alone and briefly
	probes uint64     // questions so far
	check  *check     // the unanswered question
	ended  bool       // the life has ended: nothing is asked any more
}

// check is one question to a model whether it is ready.
type check struct {
	probe uint64
	// settled is closed, once, when err is set: by the reader of the ring, by the goroutine that
	// could not send the question, or by the end of the life.
	settled chan struct{}
	err     error
}

// asksReady reports whether the model of some instance has is_ready.
func (m *Model) asksReady() bool {
	for _, in := range m.list() {
		if in.asks.Load() {
			return true
		}
	}
	return false
}

// Ready implements backend.Instance. An instance is ready while a process that has initialized its
// model is alive and, if the model has is_ready, says so. The errors have Triton's texts.
func (in *Instance) Ready(ctx context.Context) error {
	l := in.serving()
	switch {
	case l == nil:
		return in.unhealthy()
	case !l.asks:
		return nil
	}
	c, shared := l.readiness.question()
	if c == nil {
		return in.unhealthy()
	}
	late := ReadyLate
	if shared {
		late = SharedReadyLate
	} else if err := l.channel.Send(ipc.ReadyQuestion, c.probe, nil); err != nil {
		l.readiness.settle(c.probe, in.unhealthy()) // the life is about to end
	}
	// A late check continues in the model, and readiness checks that come meanwhile wait for its
	// response.
	limit := panics.NewLimit(in.model.settings.ReadyTimeout)
	defer limit.Stop()
	select {
	case <-c.settled:
		return c.err
	case <-limit.C:
		return in.fault(infer.Unavailable, late)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serving returns the life that accepts batches, or nil.
func (in *Instance) serving() *life {
	if l := in.current.Load(); l != nil && l.accepts() {
		return l
	}
	return nil
}

// question returns the unanswered question, or creates one, which is not shared and which the
// caller sends. It returns nil after the end of the life.
func (r *readiness) question() (c *check, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return nil, false
	case r.check != nil:
		return r.check, true
	}
	r.probes++
	r.check = &check{probe: r.probes, settled: make(chan struct{})}
	return r.check, false
}

// settle ends the check with that probe and reports whether there was one.
func (r *readiness) settle(probe uint64, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.check == nil || r.check.probe != probe {
		return false
	}
	r.settleLocked(err)
	return true
}

func (r *readiness) settleLocked(err error) {
	r.check.err = err
	close(r.check.settled)
	r.check = nil
}

// end settles the current check and prevents further ones.
func (r *readiness) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.check != nil {
		r.settleLocked(err)
	}
}

// maxReason limits the text of a model about why it is not ready, in bytes. It outlives the frame.
const maxReason = 64 << 10

// isReady handles the response to READY?.
func (l *life) isReady(f ipc.Frame) error {
	var body struct {
		Ready bool   `msgpack:"ready"`
		Error string `msgpack:"error"`
	}
	var reason error
	charged, err := frames.DecodeMap(l.quota.heap, f, &body)
	switch refusal := frames.Refusal(err); {
	case refusal != nil:
		reason = refusal
	case err != nil:
		return err
	case body.Error != "":
		reason = &infer.Error{Code: infer.Internal, Message: infer.Cut(body.Error, maxReason)}
	case !body.Ready:
		reason = l.in.fault(infer.Unavailable, NotReady)
	}
	l.quota.heap.Give(charged)
	if !l.readiness.settle(f.ID, reason) {
		return ipc.Broken("kind", "READY of probe %d, which was not asked", f.ID)
	}
	return nil
}

// AutoComplete implements backend.Model. The process that is asked becomes the first instance's:
// the model is imported once for both.
func (m *Model) AutoComplete(ctx context.Context, config []byte) ([]byte, error) {
	if err := m.program.Check(ctx, ""); err != nil {
		return nil, err
	}
	instances, err := m.makeInstances(m.env.Config, nil)
	if err != nil {
		return nil, err
	}
	in := instances[0]
	l, err := in.begin(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, m.startError(&startFailure{instance: in.name, err: err}, "")
	}
	answer, err := l.complete(ctx, config)
	if err != nil {
		l.end(err)
		if errors.Is(err, errStopped) {
			return nil, context.Cause(ctx)
		}
		return nil, m.startError(&startFailure{instance: in.name, err: err}, "")
	}
	in.primed = l
	m.primed = in
	return answer, nil
}

// dismiss ends the process that has completed the config and is not needed; by force when ctx ends.
func (m *Model) dismiss(ctx context.Context) {
	in := m.primed
	m.primed = nil
	if in == nil || in.primed == nil {
		return
	}
	l := in.primed
	in.primed = nil
	stop := context.AfterFunc(ctx, panics.Guard(in.log, panics.Life, l.kill, nil))
	defer stop()
	l.finalize()
	l.end(errStopped)
}

// complete asks a new process. It returns nil if the model changes nothing.
func (l *life) complete(ctx context.Context, config []byte) ([]byte, error) {
	if err := l.greet(ctx); err != nil {
		return nil, err
	}
	l.told.Store(toldAutoComplete)
	m := l.in.model
	if err := l.ask(ipc.AutoComplete, m.program.Complete(config, l.surroundings())); err != nil {
		return nil, err
	}
	if err := l.await(ctx, l.completed, m.settings.InitializeTimeout, "complete its config"); err != nil {
		return nil, err
	}
	answer := l.completion
	l.completion = nil // the caller's, and charged there
	return answer, nil
}
