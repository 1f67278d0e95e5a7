package process

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// errNotTaken says that an instance cannot be given a batch now.
var errNotTaken = errors.New("instance takes no batch")

// Execute implements backend.Instance. It panics only before the batch is inside a
// life: what is inside is answered by the life or its end.
func (in *Instance) Execute(b *backend.Batch) {
	begin := backend.Now()
	err := in.handOver(b, begin)
	if err == nil {
		return
	}
	if errors.Is(err, errNotTaken) {
		in.apart(func() { b.Done(b, backend.Report{Refused: true}) })
		return
	}
	// Done may hand the next batch over, which may fail as well, and so on for as many
	// as wait: each in a goroutine of its own, for the sake of the stack.
	boundary.Go(in.log, boundary.Request, func() { in.fail(b, begin, err) }, nil)
}

// fail answers a batch that could not be handed over.
func (in *Instance) fail(b *backend.Batch, begin int64, err error) {
	now := backend.Now()
	in.apart(func() {
		b.Done(b, backend.Report{Start: begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err})
	})
	for _, task := range b.Tasks {
		in.apart(func() { task.Send(infer.ErrorResponse(err)) })
	}
}

// handOver numbers a batch and publishes its frame. An *infer.Error means that
// the batch cannot be sent; a life that ends answers its batches itself, and is
// no error.
func (in *Instance) handOver(b *backend.Batch, begin int64) error {
	// Batches are numbered and published in one order. Nothing that holds submit
	// waits for the channel's receive lock, under which Execute may be called.
	in.submit.Lock()
	defer in.submit.Unlock()
	l, entered, ahead, err := in.enter(b, begin)
	if err != nil {
		return err
	}
	number := entered.number

	var position uint64
	err = boundary.Run(in.log, boundary.Request, func() (err error) {
		if !ahead && l.executeLimit > 0 {
			l.limit()
		}
		l.bls.Execute(b)
		position, err = l.send(b, number, entered.handles, ahead)
		return err
	})
	var panicked *boundary.Error
	if errors.As(err, &panicked) { // nothing of it was published
		err = infer.AsError(err)
	}
	return l.sent(number, position, err)
}

// enter numbers a batch and puts it inside the life of the instance.
func (in *Instance) enter(b *backend.Batch, begin int64) (l *life, entered inside, ahead bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	l = in.life
	if l == nil {
		return nil, entered, false, errNotTaken
	}
	entered, ahead, err = l.enterLocked(b, begin, in.name)
	if err != nil {
		return nil, entered, false, err
	}
	return l, entered, ahead, nil
}

// sent notes what became of the frame of a batch that has been put inside. An error is
// for its requests, as the batch is not inside any more. After a panic the life ends,
// which answers what it has.
func (f *inFlight) sent(number, position uint64, err error) (refused error) {
	var panicked error
	defer func() {
		if panicked != nil {
			f.session.fail(panicked)
		}
	}()
	defer boundary.Recover(&f.log, boundary.Life, &panicked)
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.findLocked(number)
	own := frames.Refusal(err)
	switch {
	case at < 0:
		// The life has ended meanwhile and its end answers the batch, or the stub has
		// answered it already.
		if err == nil {
			f.late.number, f.late.position = number, position
		}
	case err == nil:
		f.inside[at].position, f.inside[at].sent = position, backend.Now()
		f.handed.Store(f.inside[at].sent)
	case own != nil:
		refused = own      // also after a panic
		f.dropLastLocked() // it is the last one, as submit was held
	case !errors.Is(err, ipc.ErrClosed):
		// The channel is broken: the life ends, and its end gives the batch back,
		// for nothing of it was published.
		f.session.fail(err)
	}
	return refused
}

// aheadBelow is how short executions are, on average, for which it makes sense
// to hand a batch over before the one in front of it has been answered. A batch
// that waits behind a longer one could have gone to another instance.
const aheadBelow = 200 * time.Microsecond

// Ahead implements backend.Pipeliner. While the stub has not said what it did
// with a batch that was asked back, it gets no other ahead: it is in a long
// execution, and the next one could not be asked back.
func (in *Instance) Ahead() bool {
	if in.await.average.Load() >= int64(aheadBelow) {
		return false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	l := in.life
	return l != nil && l.count < depth && l.asked.number == 0
}

// Withdraw implements backend.Pipeliner.
func (in *Instance) Withdraw() {
	in.mu.Lock()
	l := in.life
	if l == nil {
		in.mu.Unlock()
		return
	}
	last, certain := l.withdrawLocked()
	in.mu.Unlock()
	if certain {
		// Not after Lost, which would be of another life perhaps: end waits.
		defer l.withdrawing.Done()
		last.batch.Done(last.batch, backend.Report{Refused: true, Withdrawn: true})
	}
}

// send encodes and publishes the frame of a batch; the caller holds submit. After
// an error or a panic nothing is lent and nothing was published.
func (l *life) send(b *backend.Batch, number uint64, handles []uint64, ahead bool) (position uint64, err error) {
	var few [8]*infer.Request
	requests := few[:0]
	for _, task := range b.Tasks {
		requests = append(requests, task.Request)
	}
	return l.encoder.Execute(number, requests, handles, ahead, &l.encoded)
}

// timeout ends a stub whose execute did not return in time.
func (f *inFlight) timeout(number uint64, limit time.Duration) {
	f.mu.Lock()
	late := f.count > 0 && f.inside[0].number == number
	f.mu.Unlock()
	if late {
		f.session.fail(&lateError{fmt.Sprintf("execute did not return within %s, stub is killed", limit)})
	}
}

// Cancel implements backend.Canceller.
func (in *Instance) Cancel(task *backend.Task) {
	in.mu.Lock()
	l := in.life
	handle, inside := uint64(0), false
	abandoned := false
	if l != nil {
		if handle, inside = l.handleLocked(task); inside {
			abandoned = l.abandonedLocked(handle >> 32)
		}
	}
	in.mu.Unlock()
	if inside {
		l.tell(handle)
	}
	if abandoned {
		l.bls.CancelBatch(handle >> 32)
	}
}

// abandonedLocked reports whether the clients of all requests of a batch that
// have not been answered yet have gone. It is given the low 32 bits of the
// batch's number.
func (f *inFlight) abandonedLocked(batch uint64) bool {
	tasks := f.openOfLocked(batch)
	for i := range f.count {
		if b := &f.inside[i]; b.number&math.MaxUint32 == batch {
			for at, task := range b.batch.Tasks {
				if s := b.stream(at); s == nil || !s.ended {
					tasks = append(tasks, task)
				}
			}
		}
	}
	for _, task := range tasks {
		if task.Context.Err() == nil {
			return false
		}
	}
	return true
}
