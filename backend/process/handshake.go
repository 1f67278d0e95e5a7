package process

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/vmihailenco/msgpack/v5"
)

// handshake is what a stub has been asked and has said until it takes batches. The
// reader of its frames sends to the channels; the life's own goroutine receives.
type handshake struct {
	// told is what the stub has been asked so far. The names are made before it
	// says INITIALIZE.
	told        atomic.Uint32
	seen        phase
	hello       chan error // receives one value: HELLO came
	completed   chan error // receives one value: nil, or why auto_complete_config failed
	completion  []byte     // what the model made of its config; set before completed receives
	initialized chan error // receives one value: nil, or why the model failed
	asks        bool       // the model has is_ready; set before initialized receives
}

func (h *handshake) begin() {
	h.hello, h.completed, h.initialized = make(chan error, 1), make(chan error, 1), make(chan error, 1)
}

// phase is what the stub has said so far; guarded by the receive lock.
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
	inputs, outputs := l.in.model.tensorNames()
	if err := checkNames(inputs, outputs); err != nil {
		return err
	}
	l.down, l.up = newNames(inputs, outputs), newNames(inputs, outputs)
	l.encoder.names = l.down
	l.decoupled = l.in.model.decoupled()
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

// ask sends a frame whose body is a map.
func (l *life) ask(kind ipc.Kind, fields any) error {
	if err := checkFields(kind, fields); err != nil {
		return err
	}
	body, err := msgpack.Marshal(fields)
	if err != nil {
		return err
	}
	return l.sendBody(kind, 0, body)
}

// await waits for one of the stub's messages, or for its end.
func (l *life) await(ctx context.Context, message <-chan error, limit time.Duration, what string) error {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err := <-l.failed: // whatever the stub has said before that
		return err
	default:
	}
	select {
	case err := <-message:
		return err
	case err := <-l.failed:
		return err
	case <-l.read:
		return l.readerEnded(message)
	case <-l.exited:
		// Its last frame may still be on its way through the reader. A child of the
		// model may hold the bell, so the end of the file is not waited for.
		select {
		case err := <-message:
			return err
		case <-l.read:
			return l.readerEnded(message)
		case <-time.After(closedLimit):
			return l.died()
		}
	case <-late:
		return &lateError{fmt.Sprintf("stub did not %s within %s", what, limit)}
	case <-ctx.Done():
		return errStopped
	}
}

// readerEnded says why the stub's frames ended.
func (l *life) readerEnded(message <-chan error) error {
	if l.readErr != nil {
		return l.readErr
	}
	select {
	case err := <-message: // said before the end
		return err
	default:
	}
	// End of file: mostly because the process ends. If it does not, it has closed
	// its descriptors and cannot be used.
	select {
	case <-l.exited:
		return l.died()
	case <-time.After(closedLimit):
		return errors.New("stub closed its end of the channel and lives on")
	}
}
