package process

import (
	"errors"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
)

// errNotTaken says that an instance cannot be given a batch now.
var errNotTaken = errors.New("instance takes no batch")

// Execute implements backend.Instance. It panics only before the batch is in flight
// in a life: what is in flight is answered by the life or its end.
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
	panics.Go(in.log, panics.Request, func() { in.fail(b, begin, err) }, nil)
}

// fail answers a batch that could not be handed over.
func (in *Instance) fail(b *backend.Batch, begin int64, err error) {
	now := backend.Now()
	in.apart(func() {
		b.Done(b, backend.Report{Start: begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err, GPU: in.gpu})
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
	var at int64
	err = panics.Run(in.log, panics.Request, func() (err error) {
		if !ahead && l.executeLimit > 0 {
			l.limit()
		}
		l.bls.Execute(b)
		position, at, err = l.send(b, &entered, ahead)
		return err
	})
	if err != nil {
		var panicked *panics.Error
		if errors.As(err, &panicked) { // nothing of it was published
			err = infer.AsError(err)
		}
	}
	return l.sent(number, position, at, err)
}

// enter numbers a batch and has it in flight in the life of the instance.
func (in *Instance) enter(b *backend.Batch, begin int64) (l *life, entered batchInFlight, ahead bool, err error) {
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
func (l *life) send(b *backend.Batch, entered *batchInFlight, ahead bool) (position uint64, at int64, err error) {
	var few [8]*infer.Request
	var fewHandles [8]uint64
	requests, handles := few[:0], fewHandles[:0]
	for i, task := range b.Tasks {
		requests, handles = append(requests, task.Request), append(handles, entered.handleOf(i))
	}
	number := entered.number
	return l.encoder.Execute(number, requests, handles, ahead, &l.encoded, func(lent *shm.Group) { l.lends(number, lent) })
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
