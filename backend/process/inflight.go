package process

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// depth is how many batches a stub may have: the batch in execution, and the next,
// so that it need not wait for this process to wake up between short ones.
const depth = 2

// inFlightSession is what the batches and streams of a process ask of its life.
type inFlightSession interface {
	// busyLocked says that the process has its first batch, or none any more. Callers
	// hold mu.
	busyLocked(yes bool)
	// answered says that the process needs the blocks of a batch no more.
	answered(lent *shm.Group)
	// fail ends the life because of err. It does not wait.
	fail(err error)
	// drain acts on the frames that the process has published. An error is to end the life.
	drain() error
}

// inFlight is what one process has in flight: the batches that it was handed, what became
// of the last ones, and the requests that it has left open. Four kinds of goroutines meet
// here: schedulers hand over, withdraw and cancel, the reader of the ring takes responses,
// the goroutines that write responses to clients give credit, and the end of the life
// takes what is left. Of these exactly one answers each batch and each request: the one
// that takes it out under mu.
type inFlight struct {
	// mu is Instance.mu: one lock says which life is the instance's, whether it is busy,
	// and what is in flight there. It guards everything for which nothing else is said.
	mu      *sync.Mutex
	session inFlightSession
	channel *ipc.Channel
	log     zerolog.Logger

	// executeLimit bounds an execution; 0: nothing does.
	executeLimit time.Duration
	// Set before INITIALIZE is sent, and then constant.
	decoupled bool // the model may send any number of responses to a request
	maxBatch  int

	batches
	open opened
	left left
}

func (f *inFlight) begin(in *Instance, session inFlightSession, channel *ipc.Channel) {
	f.mu, f.session, f.channel, f.log = &in.mu, session, channel, in.log
	f.executeLimit = in.model.settings.ExecuteTimeout
}

// batches are the batches of a process, and what became of the last ones.
type batches struct {
	current [depth]batchInFlight // the batch in execution first
	count   int                  // of them
	number  uint64               // of the batch that was handed over last
	freed   int64                // ns, when the last answer came
	asked   withdrawal
	timer   *panics.Limit // of the first batch, nil without a limit
	// late is a batch that was published when the life had ended already.
	late struct{ number, position uint64 }

	// encoded is the last batch of whose requests everything has been read: one
	// that is answered earlier is not known to the stub yet.
	encoded atomic.Uint64
	handed  atomic.Int64 // ns, when the latest batch was published
	// withdrawing counts the goroutines that give a batch back which was asked for.
	withdrawing sync.WaitGroup
}

// batchInFlight is a batch that the stub has.
type batchInFlight struct {
	batch    *backend.Batch
	number   uint64
	position uint64 // of the batch's frame
	begin    int64  // ns, when the batch was given to the instance
	sent     int64  // ns, when its frame was published; 0 until then
	// streams are those of its requests for which the stub has sent a response by
	// itself, in the places of the tasks; nil if there is none.
	streams []*stream
	lent    *shm.Group // blocks, nil without
}

// withdrawal is a batch ahead that was asked back and of which the stub has not
// yet said what it did with it. There is one at most, as the stub looks at one
// number only.
type withdrawal struct {
	number uint64 // 0: there is none
	// certain is true if the stub will skip it: it is not in flight any more, and
	// only the stub's notice is expected.
	certain bool
}

// popLocked takes the first batch, which the caller ends.
func (f *inFlight) popLocked() batchInFlight {
	first := f.current[0]
	copy(f.current[:], f.current[1:])
	f.count--
	f.current[f.count] = batchInFlight{}
	f.limitLocked()
	f.emptiedLocked()
	return first
}

// concludeLocked is popLocked for a batch that the stub is done with: it goes on
// with the next one, or is free. The batch is the caller's when it returns; a panic
// leaves it to the end of the life.
func (f *inFlight) concludeLocked(arrived int64) {
	first, whole := f.current[0], false
	defer func() {
		if !whole {
			f.left.batches = append(f.left.batches, first)
		}
	}()
	f.popLocked()
	f.freed = arrived
	if f.count == 0 {
		f.session.busyLocked(false)
	}
	whole = true
}

// dropLastLocked takes back the batch that was handed over last, which the stub
// does not execute.
func (f *inFlight) dropLastLocked() {
	f.count--
	f.current[f.count] = batchInFlight{}
	if f.count == 0 {
		f.limitLocked()
		f.emptiedLocked()
		f.session.busyLocked(false)
	}
}

// hasBatch reports whether the stub has something to answer.
func (f *inFlight) hasBatch() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count > 0
}

// limit is limitLocked for a batch that has just entered.
func (f *inFlight) limit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limitLocked()
}

// limitLocked limits the time of the batch that is executed from now on.
func (f *inFlight) limitLocked() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	limit := f.executeLimit
	if limit > 0 && f.count > 0 {
		number := f.current[0].number
		f.timer = panics.AfterLimit(f.log, panics.Life, limit, func() { f.timeout(number, limit) }, f.session.fail)
	}
}

// enterLocked numbers a batch and puts it behind those that are in flight. ahead says
// that there are any. An *infer.Error is for the batch's requests.
func (f *inFlight) enterLocked(b *backend.Batch, begin int64, instance string) (entered batchInFlight, ahead bool, err error) {
	if f.count == depth {
		return entered, false, errNotTaken
	}
	if len(f.open.byHandle) >= maxOpen {
		return entered, false, infer.Errorf(infer.Unavailable, "instance '%s' has %d requests open, which is the most that it may have", instance, maxOpen)
	}
	f.number++
	if f.number&math.MaxUint32 == 0 {
		f.number++ // no handle is 0
	}
	entered = batchInFlight{batch: b, number: f.number, position: math.MaxUint64, begin: begin}
	for i, task := range b.Tasks {
		task.Handle = handleOf(entered.number, i)
	}
	ahead = f.count > 0
	if !ahead {
		f.session.busyLocked(true)
	}
	f.current[f.count] = entered
	f.count++
	return entered, ahead, nil
}

// withdrawLocked asks for the batch ahead back. certain says that the process will skip it:
// the batch is the caller's, who calls withdrawing.Done when it has been given back.
func (f *inFlight) withdrawLocked() (last batchInFlight, certain bool) {
	if f.count < depth || f.asked.number != 0 || f.current[f.count-1].sent == 0 {
		return last, false
	}
	last = f.current[f.count-1]
	certain = f.channel.Withdraw(last.number)
	f.asked = withdrawal{number: last.number, certain: certain}
	if certain {
		f.dropLastLocked()
		f.withdrawing.Add(1)
	}
	return last, certain
}

// leaveLocked takes what the process still has; the end of the life answers it.
func (f *inFlight) leaveLocked() {
	f.left.batches = append(f.left.batches, f.current[:f.count]...)
	f.current, f.count = [depth]batchInFlight{}, 0
	f.left.open = f.endOpenLocked()
}

// lends notes the blocks that the process is about to be lent with a batch.
func (f *inFlight) lends(number uint64, lent *shm.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if place := f.findLocked(number); place >= 0 {
		f.current[place].lent = lent
	}
}

// sent notes what became of the frame of a batch that has entered: where it lies, and when it was published. An error is
// for its requests, as the batch is not in flight any more. After a panic the life ends,
// which answers what it has.
func (f *inFlight) sent(number, position uint64, at int64, err error) (refused error) {
	var panicked error
	defer func() {
		if panicked != nil {
			f.session.fail(panicked)
		}
	}()
	defer panics.Recover(&f.log, panics.Life, &panicked)
	f.mu.Lock()
	defer f.mu.Unlock()
	place := f.findLocked(number)
	own := frames.Refusal(err)
	switch {
	case place < 0:
		// The life has ended meanwhile and its end answers the batch, or the stub has
		// answered it already.
		if err == nil {
			f.late.number, f.late.position = number, position
		}
	case err == nil:
		f.current[place].position, f.current[place].sent = position, at
		f.handed.Store(at)
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

// timeout ends a stub whose execute did not return in time. It reads the ring first: a published
// answer is in time.
func (f *inFlight) timeout(number uint64, limit time.Duration) {
	if err := f.session.drain(); err != nil {
		f.session.fail(err)
		return
	}
	f.mu.Lock()
	late := f.count > 0 && f.current[0].number == number
	f.mu.Unlock()
	if late {
		f.session.fail(&lateError{fmt.Sprintf("execute did not return within %s, process is killed", limit)})
	}
}
