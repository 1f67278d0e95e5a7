package process

import (
	"errors"
	"math"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// left is what a life had when it ended and has not been answered. Guarded by
// Instance.mu until taken, then the end's own.
type left struct {
	taken   bool            // from the instance
	wasUp   bool            // and the scheduler has not been told that it is not any more
	batches []batchInFlight // without a batch: answered
	open    []*stream
}

// end takes everything down that belongs to the life, and answers what the stub
// still had.
func (l *life) end(cause error) {
	in := l.in
	l.close()
	l.readiness.end(in.fault(infer.Internal, ReadyLost))
	in.current.CompareAndSwap(l, nil)

	l.look()
	l.process.Kill() // and with it, when it is reaped, its group
	<-l.exited
	l.process.KillFamily()
	var broke *ipc.ProtocolError
	var panicked *panics.Error
	liar := errors.As(cause, &broke)
	// Its last frames count, unless one before them was handled halfway.
	if !liar && !errors.As(cause, &panicked) {
		liar = errors.As(l.drain(), &broke)
	}
	if liar {
		in.model.supervisor.metrics.ProtocolError(broke.Rule)
	}
	l.leave(errors.Is(cause, errStopped))
	// A scheduler that hands a batch over may not have noticed yet that the life has ended.
	in.submit.Lock()
	in.submit.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	left := l.left.batches
	taken := make([]bool, len(left))
	for i := range left {
		if left[i].number == l.late.number {
			left[i].position = l.late.position
		}
		// What a stub that broke the protocol says of its head is not believed: its
		// batch may be why, and would break the next one too.
		taken[i] = liar || left[i].streams != nil || l.channel.Taken(left[i].position) || left[i].lostAgain()
	}
	in.model.supervisor.children.Forget(l.process)
	l.hear(false)
	l.output.Finish()
	l.channel.Close()
	<-l.read
	l.bls.Close()
	l.mapped.Close()
	l.closeDevices()
	l.loans.Close()
	l.quota.holder.Leave()

	l.settleLeft(taken)
	in.model.supervisor.children.KillOrphans(l.process)
	l.calls.Close(l.seen == phaseFinalized && !liar)
}

// close makes the life refuse batches. The batches in flight continue.
func (l *life) close() {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.closeLocked()
}

func (l *life) closeLocked() {
	if l.in.life == l {
		l.left.wasUp = true
		l.in.life = nil
	}
}

// leave takes the life from its instance, and notes what the stub still had before
// anything that could go wrong. It does so once.
func (l *life) leave(stopped bool) {
	in := l.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.left.taken {
		return
	}
	l.left.taken = true
	l.closeLocked()
	l.leaveLocked()
	if stopped {
		in.moveLocked(Stopped)
	} else {
		in.moveLocked(Lost)
	}
	l.limitLocked()
	l.emptiedLocked()
}

// settleLeft answers what has not been answered of what the stub had, gives back those
// batches that it has not taken, and says that the instance is lost. Taken is nil if
// the stub may have taken each.
func (l *life) settleLeft(taken []bool) {
	batches := l.left.batches
	for i := len(batches) - 1; i >= 0; i-- { // what goes back to the queue's front keeps its order
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

// mostLost is how many lives may end with a request in flight.
const mostLost = 2

// lostAgain takes account of a life that ends before it has looked at a batch that
// lay in its ring, and reports whether that is once too often for one of the
// requests.
func (i *batchInFlight) lostAgain() (enough bool) {
	if i.position == math.MaxUint64 { // it was never there
		return false
	}
	for _, task := range i.batch.Tasks {
		task.Lost++
		enough = enough || task.Lost >= mostLost
	}
	return enough
}

// abandon answers the batch that a lost stub had, or gives it back if the stub
// had not looked at it; once.
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

// drop is what is left of an end that went wrong: the process goes, and with the
// channel its memory; what has not been answered is.
func (l *life) drop(cause error) {
	in := l.in
	l.apart(func() { l.leave(errors.Is(cause, errStopped)) })
	l.apart(func() { l.readiness.end(in.fault(infer.Internal, ReadyLost)) })
	l.apart(l.process.Kill)
	<-l.exited
	in.submit.Lock()   // as in end
	in.submit.Unlock() //nolint:staticcheck // only waited for
	l.withdrawing.Wait()
	l.apart(func() { in.model.supervisor.children.Forget(l.process) })
	l.apart(func() { l.hear(false) })
	l.apart(l.channel.Close)
	select {
	case <-l.read:
	case <-time.After(closedLimit): // its channel may not be closed
	}
	l.apart(l.mapped.Close)
	l.apart(l.closeDevices)
	l.apart(l.loans.Close)
	l.apart(l.quota.holder.Leave)
	l.settleLeft(nil)
}
