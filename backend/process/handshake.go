package process

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// handshake is what a process has been asked and has said until it takes batches, and at
// its end. The reader of its frames sends to the channels, which have room for what is
// sent; the life's own goroutine receives.
type handshake struct {
	// told is what the process has been asked so far. The tables of names are made
	// before it says INITIALIZE.
	told        atomic.Uint32
	seen        phase      // guarded by the receive lock
	hello       chan error // receives one value: HELLO came
	completed   chan error // receives one value: nil, or why auto_complete_config failed
	completion  []byte     // what the model made of its config; set before completed receives
	initialized chan error // receives one value: nil, or why the model failed
	asks        bool       // the model has is_ready; set before initialized receives
}

func (h *handshake) begin() {
	h.hello, h.completed, h.initialized = make(chan error, 1), make(chan error, 1), make(chan error, 1)
}

// phase is what the process has said so far.
type phase uint8

const (
	phaseStarted phase = iota
	phaseHello
	phaseCompleted
	phaseInitialized
	phaseFinalized
)

// What a stub has been asked.
const (
	toldNothing uint32 = iota
	toldAutoComplete
	toldInitialize
)

// allows reports whether the process may send a frame of this kind now. Callers hold the
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

// receive acts on a frame that moves the handshake on, and that allows has let through.
// Callers hold the receive lock.
func (h *handshake) receive(f ipc.Frame) error {
	switch f.Kind {
	case ipc.Hello:
		h.seen = phaseHello
		if err := frames.DecodeMap(f, &struct{}{}); err != nil {
			return err
		}
		h.hello <- nil
	case ipc.Completed:
		h.seen = phaseCompleted
		return h.complete(f)
	case ipc.Initialized:
		h.seen = phaseInitialized
		return h.initialize(f)
	case ipc.Finalized:
		h.seen = phaseFinalized
		// What finalize raised is in the log already, with its traceback.
		return frames.DecodeMap(f, &struct {
			Error string `msgpack:"error"`
		}{})
	}
	return nil
}

// complete takes what the model made of its config.
func (h *handshake) complete(f ipc.Frame) error {
	var body struct {
		Error  string `msgpack:"error"`
		Config string `msgpack:"config"`
	}
	if err := frames.DecodeMap(f, &body); err != nil {
		return err
	}
	switch {
	case body.Error != "":
		h.completed <- infer.Errorf(infer.Internal, "%s", body.Error)
		return nil
	case body.Config != "":
		h.completion = []byte(body.Config)
	}
	h.completed <- nil
	return nil
}

// initialize takes what became of the model's initialize.
func (h *handshake) initialize(f ipc.Frame) error {
	var body struct {
		Error   string `msgpack:"error"`
		IsReady bool   `msgpack:"is_ready"`
	}
	if err := frames.DecodeMap(f, &body); err != nil {
		return err
	}
	h.asks = body.IsReady
	if body.Error != "" {
		h.initialized <- infer.Errorf(infer.Internal, "%s", body.Error)
	} else {
		h.initialized <- nil
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

// initialize waits for HELLO, unless it has come, sends INITIALIZE and waits for
// INITIALIZED.
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
		l.encoder.TakeDevices()
	}
	l.decoupled, l.maxBatch = l.in.model.decoupled(), int(l.in.model.config.GetMaxBatchSize())
	l.told.Store(toldInitialize)
	l.hear(true)
	question := l.initialization()
	if err := l.ask(ipc.Initialize, l.in.model.program.Initialize(l.in.placement(), question)); err != nil {
		return err
	}
	if levels := l.in.model.supervisor.levels(); levels != question.Log {
		// They have changed, and the news may have been faster.
		if err := l.ask(ipc.LogSettings, levels); err != nil {
			return err
		}
	}
	return l.await(ctx, l.initialized, l.in.model.settings.InitializeTimeout, "initialize its model")
}

// setNames begins the tables of tensor names.
func (l *life) setNames(inputs, outputs []string) error {
	told, err := frames.NewNames(inputs, outputs)
	if err != nil {
		return err
	}
	heard, err := frames.NewNames(inputs, outputs)
	if err != nil {
		return err
	}
	l.encoder.SetNames(told)
	l.decoder.SetNames(heard)
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
