package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// left is the work of a life that had not been answered when the life ended. Guarded by inFlight.mu
// until taken is set; after that only the end uses it.
type left struct {
	taken   bool
	wasUp   bool            // the scheduler has to be told that the life no longer accepts batches
	batches []batchInFlight // an entry without a batch has been answered
	open    []*stream
}

// end releases everything that belongs to the life and answers its remaining work.
func (l *life) end(cause error) {
	in := l.in
	l.close()
	l.readiness.end(in.fault(infer.Internal, ReadyLost))
	in.current.CompareAndSwap(l, nil)

	last, detaches := l.leaveHost(), l.detaches()
	if !detaches {
		if exit := (*launch.ExitError)(nil); cause != nil && !errors.Is(cause, errStopped) && !errors.As(cause, &exit) {
			l.fault.CompareAndSwap(nil, &cause)
		}
		l.endProcess()
	}
	var broke *ipc.ProtocolError
	var panicked *panics.Error
	liar := errors.As(cause, &broke)
	// Its last frames count, unless handling one before them failed midway.
	if !liar && !errors.As(cause, &panicked) {
		liar = errors.As(l.drain(), &broke)
	}
	if liar {
		in.model.supervisor.metrics.ProtocolError(broke.Rule)
	}
	l.leave()
	// A scheduler that submits a batch may not have noticed that the life has ended.
	l.encoder.Lock()
	l.encoder.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	left := l.left.batches
	taken := make([]bool, len(left)) // bound: the batches in flight
	for i := range left {
		if left[i].number == l.late.number {
			left[i].position = l.late.position
		}
		// A stub that broke the protocol is not believed about its head: its batch may be the
		// reason and would break the next stub too.
		taken[i] = liar || left[i].streams != nil || l.channel.Taken(left[i].position) || left[i].lostAgain()
	}
	l.hear(false)
	if !detaches {
		l.finish() // cause may be l.exit, returned before its last lines had been read
	}
	l.channel.Close()
	<-l.read
	l.bls.Close()
	l.mapped.Close()
	l.closeDevices()
	l.loans.Close()
	l.quota.holder.Leave()

	l.settleLeft(taken)
	if detaches && last {
		l.awaitExit()
		l.endProcess()
		l.finish()
	}
	if !detaches || last {
		in.model.supervisor.children.KillOrphans(l.process)
	}
	l.calls.Close(l.seen == phaseFinalized && !liar)
}

// endProcess kills the process unless it has exited, and returns when it has been reaped.
func (l *life) endProcess() {
	l.look()
	l.kill() // and its group when it is reaped
	<-l.exited
	l.process.KillFamily()
}

// leaveHost counts the end of the life, once, and reports whether it was the last of its process.
func (l *life) leaveHost() (last bool) {
	l.leaving.Do(func() {
		if l.serves {
			l.serving.Add(-1)
		}
		last = l.host.leave()
	})
	return last
}

// awaitExit gives a shared process without lives the time to exit by itself.
func (l *life) awaitExit() {
	limit := panics.NewLimit(l.in.model.settings.FinalizeTimeout)
	defer limit.Stop()
	select {
	case <-l.exited:
	case <-limit.C:
		l.in.log.Warn().Stringer("limit", l.in.model.settings.FinalizeTimeout).Msg("the process did not exit in time, killing it")
	}
}

// detaches reports whether the life ends in order in a shared process, which may go on.
func (l *life) detaches() bool {
	select {
	case <-l.detached():
		return true
	default:
		return false
	}
}

// detached returns a channel that is closed when a shared process has no more work for this life;
// nil if the process is not shared.
func (l *life) detached() <-chan struct{} {
	if l.joins == nil {
		return nil
	}
	return l.over
}

// close makes the life refuse batches. The batches in flight continue.
func (l *life) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *life) closeLocked() {
	if l.up {
		l.left.wasUp = true
		l.up = false
	}
}

// leave records, once, the remaining work of the stub, before anything that could panic.
func (l *life) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left.taken {
		return
	}
	l.left.taken = true
	l.closeLocked()
	l.leaveLocked()
	l.limitLocked()
	l.emptiedLocked()
}

// settleLeft answers the remaining work, gives back the batches that the stub has not taken, and
// reports the instance as lost. If taken is nil, the stub may have taken each batch.
func (l *life) settleLeft(taken []bool) {
	batches := l.left.batches
	for i := len(batches) - 1; i >= 0; i-- { // batches that go back to the queue's front keep their order
		if taken != nil && !taken[i] {
			l.apart(func() { l.abandon(&batches[i], false) })
		}
	}
	if l.left.wasUp {
		l.left.wasUp = false
		l.apart(func() { l.in.lost(false) })
	}
	for i := range batches {
		l.apart(func() { l.abandon(&batches[i], true) })
	}
	for len(l.left.open) > 0 {
		s := l.left.open[0]
		l.left.open = l.left.open[1:]
		l.apart(func() { s.task.Send(infer.ErrorResponse(l.lostError(s.task))) })
	}
}

// mostLost is the number of lives that may end with a request in flight.
const mostLost = 2

// lostAgain counts a life that ended before it had looked at a batch in its ring. It reports
// whether one of the requests has reached mostLost.
func (i *batchInFlight) lostAgain() (enough bool) {
	if i.position == math.MaxUint64 { // its frame was never published
		return false
	}
	for _, task := range i.batch.Tasks {
		task.Lost++
		enough = enough || task.Lost >= mostLost
	}
	return enough
}

// abandon answers a lost stub's batch, or gives it back if the stub had not looked at it; once.
func (l *life) abandon(of *batchInFlight, taken bool) {
	batch := of.batch
	if batch == nil {
		return
	}
	of.batch = nil
	if !taken {
		batch.Done(batch, backend.Report{Refused: true})
		return
	}
	err := l.in.unhealthy()
	now := backend.Now()
	l.apart(func() {
		batch.Done(batch, backend.Report{Start: of.begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err, GPU: l.in.gpu})
	})
	for i, task := range batch.Tasks {
		if s := of.stream(i); s == nil || !s.ended {
			l.apart(func() { task.Send(infer.ErrorResponse(l.lostError(task))) })
		}
	}
}

// drop finishes an end that panicked: it kills the process, closes the channel with its memory, and
// answers the remaining work.
func (l *life) drop() {
	in := l.in
	l.apart(l.leave)
	l.apart(func() { l.readiness.end(in.fault(infer.Internal, ReadyLost)) })
	l.apart(l.kill)
	l.apart(func() { l.leaveHost() })
	<-l.exited
	l.encoder.Lock()   // as in end
	l.encoder.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	l.apart(l.finish)
	l.apart(func() { l.hear(false) })
	l.apart(l.channel.Close)
	select {
	case <-l.read:
	case <-time.After(closedLimit): // closing the channel may have failed
	}
	l.apart(l.mapped.Close)
	l.apart(l.closeDevices)
	l.apart(l.loans.Close)
	l.apart(l.quota.holder.Leave)
	l.settleLeft(nil)
}

// ending is the process of a life and the reason for its end. Three goroutines meet here: the
// waiter of the process closes exited, the reader of the ring sets readErr and closes read, and the
// goroutine of the life waits for both. Any goroutine may call fail.
type ending struct {
	*host
	leaving sync.Once     // of host
	serves  bool          // counted in host.serving; used by the life's own goroutine alone
	hasty   chan struct{} // closed, once, to stop waiting for requests that the process has left open
	hasten  sync.Once
	failed  chan error // buffered; the first value counts: this life must end
	read    chan struct{}
	readErr error // of the reader, set when read is closed
}

func (e *ending) begin() {
	e.hasty = make(chan struct{})
	e.failed, e.read = make(chan error, 1), make(chan struct{})
}

// closedLimit is the time that a stub may take to end after it has closed its bell.
const closedLimit = 500 * time.Millisecond

// fail ends the life because of err. It does not wait.
func (e *ending) fail(err error) {
	select {
	case e.failed <- err:
	default:
	}
	e.fault.CompareAndSwap(nil, &err)
	e.kill()
}

// died returns how the process ended, or why the server killed it.
func (e *ending) died() error {
	select {
	case err := <-e.failed:
		return err
	default:
	}
	if err := e.fault.Load(); err != nil && e.joins != nil {
		return fmt.Errorf("another instance in its process failed: %w", *err)
	}
	return e.exit
}

// await waits for a message of the stub, or for its end.
func (l *life) await(ctx context.Context, message <-chan error, limit time.Duration, what string) error {
	late := panics.NewLimit(limit)
	defer late.Stop()
	select {
	case err := <-l.failed: // even if the stub has sent a message before
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
		// A child of the model may hold the bell open, so await does not wait for its end of file.
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
	case <-l.brokenOff(ctx):
		return errStopped
	}
}

// brokenOff returns a channel that is closed when the life may be broken off because ctx has ended:
// at once, or, if its process serves other instances, when it is killed anyway.
func (l *life) brokenOff(ctx context.Context) <-chan struct{} {
	if l.joins != nil && l.serving.Load() > 0 {
		return l.in.doomsday
	}
	return ctx.Done()
}

// drain handles the frames that the process has published. An error must end the life. The caller
// does not hold the channel's receive lock.
func (l *life) drain() error {
	_, err := l.channel.Receive(l.handle)
	if errors.Is(err, ipc.ErrClosed) {
		return nil
	}
	return err
}

// readerEnded returns why the stub's frames ended.
func (e *ending) readerEnded(message <-chan error) error {
	if e.readErr != nil {
		return e.readErr
	}
	select {
	case err := <-message: // sent before the end
		return err
	default:
	}
	// End of file, usually because the process ends. If it does not end, it has closed its
	// descriptors and cannot be used.
	limit := panics.NewLimit(closedLimit)
	defer limit.Stop()
	select {
	case <-e.exited:
		return e.died()
	case <-limit.C:
		return errors.New("process closed its end of the channel but is still running")
	}
}
