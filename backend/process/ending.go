package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// ending is the process of a life and how it ends. Three goroutines meet here: the
// waiter sets exit and closes exited, the reader of the ring sets readErr and closes
// read, and the goroutine of the life waits for both. Any goroutine may call fail.
type ending struct {
	process *launch.Process
	output  *output.Capture
	hasty   chan struct{} // closed, once, when what the process has left open is not waited for any more
	hasten  sync.Once
	failed  chan error // buffered, first value counts: this life must end
	exited  chan struct{}
	exit    *launch.ExitError // set when exited is closed
	read    chan struct{}
	readErr error // of the reader, set when read is closed
}

func (e *ending) begin() {
	e.hasty = make(chan struct{})
	e.failed, e.exited, e.read = make(chan error, 1), make(chan struct{}), make(chan struct{})
}

// closedLimit is how long after the end of its bell a stub may take to end.
const closedLimit = 500 * time.Millisecond

// fail ends the life because of err. It does not wait.
func (e *ending) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
	e.process.Kill()
}

// died says how the process ended, or why it was killed if we did it.
func (e *ending) died() error {
	select {
	case err := <-e.failed:
		return err
	default:
	}
	e.exit.Stderr = e.output.LastLines()
	return e.exit
}

// await waits for one of the stub's messages, or for its end.
func (l *life) await(ctx context.Context, message <-chan error, limit time.Duration, what string) error {
	late := panics.NewLimit(limit)
	defer late.Stop()
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
		// A child of the model may hold the bell, so the end of the file is not waited for.
		broken := l.drain()
		select {
		case err := <-message:
			return err
		default:
			return cmp.Or(broken, l.died())
		}
	case <-late.C:
		broken := l.drain()
		select {
		case err := <-message:
			return err
		default:
			return cmp.Or[error](broken, &lateError{fmt.Sprintf("process did not %s within %s", what, limit)})
		}
	case <-ctx.Done():
		return errStopped
	}
}

// drain acts on the frames that the process has published. An error is to end the life. The
// caller does not hold the channel's receive lock.
func (l *life) drain() error {
	_, err := l.channel.Receive(l.handle)
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}

// readerEnded says why the stub's frames ended.
func (e *ending) readerEnded(message <-chan error) error {
	if e.readErr != nil {
		return e.readErr
	}
	select {
	case err := <-message: // said before the end
		return err
	default:
	}
	// End of file: mostly because the process ends. If it does not, it has closed
	// its descriptors and cannot be used.
	limit := panics.NewLimit(closedLimit)
	defer limit.Stop()
	select {
	case <-e.exited:
		return e.died()
	case <-limit.C:
		return errors.New("process closed its end of the channel and lives on")
	}
}
