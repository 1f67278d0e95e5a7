package process

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/bls"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
)

// errNotTaken is the error of an instance that accepts no batch now.
var errNotTaken = errors.New("instance takes no batch")

// Execute implements backend.Instance. It panics only before the batch is in flight in a life. From
// then on the life, or its end, answers the batch.
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
	// Done may submit the next batch, which may fail as well, and so on for every waiting batch.
	// Each gets its own goroutine so that the stack does not grow.
	panics.Go(in.log, panics.Request, func() { in.fail(b, begin, err) }, nil)
}

// fail answers a batch that could not be submitted.
func (in *Instance) fail(b *backend.Batch, begin int64, err error) {
	now := backend.Now()
	in.apart(func() {
		b.Done(b, backend.Report{Start: begin, ComputeStart: now, ComputeEnd: now, End: now, Err: err, GPU: in.gpu})
	})
	for _, task := range b.Tasks {
		in.apart(func() { task.Send(infer.ErrorResponse(err)) })
	}
}

// handOver numbers a batch and publishes its frame. An *infer.Error means that the batch cannot be
// sent. The end of a life is no error: it answers its batches itself.
func (in *Instance) handOver(b *backend.Batch, begin int64) error {
	// Batches are numbered and published in the same order. Nothing that holds submit waits for the
	// channel's receive lock, under which Execute may be called.
	in.submit.Lock()
	defer in.submit.Unlock()
	l := in.current.Load()
	if l == nil {
		return errNotTaken
	}
	entered, ahead, err := l.enter(b, begin, in.name)
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
		if errors.As(err, &panicked) { // nothing was published
			err = infer.AsError(err)
		}
	}
	return l.sent(number, position, at, err)
}

// aheadBelow is the average duration of executions below which the instance accepts a batch ahead.
// A batch that waits behind a longer execution could have gone to another instance.
const aheadBelow = 200 * time.Microsecond

// Ahead implements backend.Pipeliner. Until the stub has reported the fate of a withdrawn batch, it
// gets no other batch ahead: it is in a long execution, and the next batch could not be withdrawn.
func (in *Instance) Ahead() bool {
	if in.await.average.Load() >= int64(aheadBelow) {
		return false
	}
	l := in.current.Load()
	return l != nil && l.roomAhead()
}

// Withdraw implements backend.Pipeliner.
func (in *Instance) Withdraw() {
	l := in.current.Load()
	if l == nil {
		return
	}
	if last, certain := l.withdraw(); certain {
		// This must come before Lost, which could be another life's: end waits for withdrawing.
		defer l.withdrawing.Done()
		last.batch.Done(last.batch, backend.Report{Refused: true, Withdrawn: true})
	}
}

// send encodes and publishes the frame of a batch; the caller holds submit. After an error or a
// panic nothing is lent and nothing was published.
func (l *life) send(b *backend.Batch, entered *batchInFlight, ahead bool) (position uint64, at int64, err error) {
	var few [8]*infer.Request
	var fewHandles [8]uint64
	requests, handles := few[:0], fewHandles[:0]
	for i, task := range b.Tasks {
		requests, handles = append(requests, task.Request), append(handles, entered.handleOf(i)) // bound: the batch
	}
	number := entered.number
	return l.encoder.Execute(number, requests, handles, ahead, &l.encoded, func(lent *shm.Group) { l.lends(number, lent) })
}

// Cancel implements backend.Canceller.
func (in *Instance) Cancel(task *backend.Task) {
	l := in.current.Load()
	if l == nil {
		return
	}
	handle, inside, abandoned := l.cancelled(task)
	if inside {
		l.tell(handle)
	}
	if abandoned {
		l.bls.CancelBatch(handle >> 32)
	}
}

// awaitState learns how long responses take, to decide whether spinning for the next one pays off.
// Races between updates only lose a sample.
type awaitState struct {
	// average is the moving average (1/8) of ns from submitting a batch until its response was
	// published. It leaves out this side's own wake-up.
	average atomic.Int64
	// think is the same average of the time before the stub's next frame while that depends on the
	// stub alone. It leaves out the time in which the stub waits for other models.
	think atomic.Int64
	// skip counts the waits to sleep through, because a yield took so long that another process
	// needs the processor. penalty is the next such number; clean counts the spins since.
	skip    atomic.Int32
	penalty atomic.Int32
	clean   atomic.Int32
}

// Limits of spinning; see docs/protocol.md.
const (
	slowYield    = 200 * time.Microsecond
	firstPenalty = 4
	lastPenalty  = 1024
	cleanSpins   = 64
)

// observe adds a sample of a batch's response time, and thought one of a frame.
func (a *awaitState) observe(wait int64) { learn(&a.average, wait) }
func (a *awaitState) thought(wait int64) { learn(&a.think, wait) }

func learn(average *atomic.Int64, wait int64) {
	// A single long wait, such as a restart, must not disable spinning for long.
	wait = min(max(wait, 0), int64(time.Millisecond))
	old := average.Load()
	average.Store(old + (wait-old)/8)
}

func (a *awaitState) worthwhile(budget time.Duration) bool {
	if budget <= 0 || a.think.Load() > int64(budget) {
		return false
	}
	if a.skip.Load() > 0 {
		a.skip.Add(-1)
		return false
	}
	return true
}

func (a *awaitState) spun(longest time.Duration) {
	if longest > slowYield {
		next := min(max(a.penalty.Load()*2, firstPenalty), lastPenalty)
		a.penalty.Store(next)
		a.skip.Store(next)
		a.clean.Store(0)
		return
	}
	if a.clean.Add(1) >= cleanSpins {
		a.clean.Store(0)
		a.penalty.Store(a.penalty.Load() / 2)
	}
}

// Await implements backend.Awaiter.
func (in *Instance) Await(done <-chan struct{}) {
	l := in.current.Load()
	budget := in.model.settings.Spin
	if l == nil || !in.await.worthwhile(budget) {
		return
	}
	f := bls.Follower{Of: l.bls}
	longest, err := l.channel.Spin(budget, done, l.handle, f.Look)
	f.Leave()
	in.await.spun(longest)
	if err != nil {
		l.fail(err)
	}
}
