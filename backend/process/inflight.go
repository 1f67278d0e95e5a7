package process

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
)

// depth is the number of batches that a stub may have: the batch in execution and the next one, so
// that the stub need not wait for this process to wake up between short executions.
const depth = 2

// inFlightSession is the part of a life that its batches and streams use.
type inFlightSession interface {
	// answered says that the process no longer needs the blocks of a batch.
	answered(lent *shm.Group)
	// fail ends the life because of err. It does not wait.
	fail(err error)
	// drain handles the frames that the process has published. An error must end the life.
	drain() error
}

// inFlight holds the batches and requests in flight in one process: the batches that it was
// handed, the state of the last ones, and the requests that it has left open. Four kinds of
// goroutines meet here: schedulers hand over, withdraw and cancel; the reader of the ring takes
// responses; goroutines that write responses to clients give credit; and the end of the life
// takes the rest. The goroutine that removes a batch or request under mu answers it, so each is
// answered once.
type inFlight struct {
	// mu guards every field without another rule.
	mu      sync.Mutex
	up      bool // batches are accepted
	session inFlightSession
	channel *ipc.Channel
	log     zerolog.Logger

	// executeLimit limits an execution; 0 means no limit.
	executeLimit time.Duration
	// Set before INITIALIZE is sent, and then constant.
	decoupled bool // the model may send any number of responses to a request
	maxBatch  int

	batches
	open opened
	left left
}

func (f *inFlight) begin(in *Instance, session inFlightSession, channel *ipc.Channel) {
	f.session, f.channel, f.log = session, channel, in.log
	f.executeLimit = in.model.settings.ExecuteTimeout
}

// batches are the batches of a process, and the state of the last ones.
type batches struct {
	current [depth]batchInFlight // the batch in execution first
	count   int                  // of current
	number  uint64               // of the latest batch
	freed   int64                // when the last response came
	asked   withdrawal
	timer   *panics.Limit // of the first batch, nil without a limit
	// late is a batch that was published after the life had ended.
	late struct{ number, position uint64 }

	// encoded is the last batch whose requests have been read completely. The stub cannot know a
	// later one.
	encoded atomic.Uint64
	handed  atomic.Int64 // ns, when the latest batch was published
	// withdrawing counts the goroutines that give a withdrawn batch back.
	withdrawing sync.WaitGroup
}

// batchInFlight is a batch that the stub has.
type batchInFlight struct {
	batch    *backend.Batch
	number   uint64
	position uint64 // of the batch's frame
	begin    int64  // ns, when the batch was given to the instance
	sent     int64  // ns, when its frame was published; 0 until then
	// streams are the requests of the batch for which the stub has sent responses separately, at
	// the positions of the tasks; nil without any.
	streams []*stream
	lent    *shm.Group // blocks; nil without any
}

// withdrawal is a batch ahead that was asked back and whose fate the stub has not reported yet.
// There is at most one, because the stub looks at one number only.
type withdrawal struct {
	number uint64 // 0 without a withdrawal
	// certain reports that the stub will skip the batch: it is not in flight any more, and only the
	// stub's notice is missing.
	certain bool
}

// popLocked removes the first batch, which the caller ends.
func (f *inFlight) popLocked() batchInFlight {
	first := f.current[0]
	copy(f.current[:], f.current[1:])
	f.count--
	f.current[f.count] = batchInFlight{}
	f.limitLocked()
	f.emptiedLocked()
	return first
}

// concludeLocked is popLocked for a batch that the stub has finished. The caller owns the batch
// when it returns; after a panic the end of the life does.
func (f *inFlight) concludeLocked(arrived int64) {
	first, whole := f.current[0], false
	defer func() {
		if !whole {
			f.left.batches = append(f.left.batches, first) // bound: batches in flight
		}
	}()
	f.popLocked()
	f.freed = arrived
	whole = true
}

// dropLastLocked removes the latest batch, which the stub does not execute.
func (f *inFlight) dropLastLocked() {
	f.count--
	f.current[f.count] = batchInFlight{}
	if f.count == 0 {
		f.limitLocked()
		f.emptiedLocked()
	}
}

// setUp makes the process accept batches.
func (f *inFlight) setUp() {
	f.mu.Lock()
	f.up = true
	f.mu.Unlock()
}

// accepts reports whether the process accepts batches.
func (f *inFlight) accepts() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}

// roomAhead reports whether the process accepts a batch behind the one that it executes.
func (f *inFlight) roomAhead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up && f.count < depth && f.asked.number == 0
}

// busy reports whether the process executes. It does not wait for the lock: a goroutine that holds
// it is mostly handing a batch over, or taking one out.
func (f *inFlight) busy() bool {
	if !f.mu.TryLock() {
		return true
	}
	defer f.mu.Unlock()
	return f.count > 0
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

// limitLocked starts the time limit of the batch that is executed from now on.
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

// enter numbers a batch and puts it behind the batches in flight; ahead reports whether another
// batch is before it. An *infer.Error is for the batch's requests.
func (f *inFlight) enter(b *backend.Batch, begin int64, instance string) (entered batchInFlight, ahead bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up || f.count == depth {
		return entered, false, errNotTaken
	}
	if len(f.open.byHandle) >= maxOpen {
		return entered, false, infer.Errorf(infer.Unavailable, "instance '%s' has %d requests open, which is the maximum", instance, maxOpen)
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
	f.current[f.count] = entered
	f.count++
	return entered, ahead, nil
}

// withdraw asks for the batch ahead back. certain reports that the process will skip the batch;
// then the caller returns it to the scheduler and calls withdrawing.Done.
func (f *inFlight) withdraw() (last batchInFlight, certain bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up || f.count < depth || f.asked.number != 0 || f.current[f.count-1].sent == 0 {
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

// leaveLocked removes the remaining work of the process; the end of the life answers it.
func (f *inFlight) leaveLocked() {
	f.left.batches = append(f.left.batches, f.current[:f.count]...) // bound: batches in flight
	f.current, f.count = [depth]batchInFlight{}, 0
	f.left.open = f.endOpenLocked()
}

// lends records the blocks that the process is about to be lent with a batch.
func (f *inFlight) lends(number uint64, lent *shm.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index := f.findLocked(number); index >= 0 {
		f.current[index].lent = lent
	}
}

// sent records the position of the frame of a batch and when it was published. It returns an error
// for the batch's requests, which are not in flight any more. After a panic the life ends, and its
// end answers the batch.
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
	index := f.findLocked(number)
	own := frames.Refusal(err)
	switch {
	case index < 0:
		// The life has ended and its end answers the batch, or the stub has already answered it.
		if err == nil {
			f.late.number, f.late.position = number, position
		}
	case err == nil:
		f.current[index].position, f.current[index].sent = position, at
		f.handed.Store(at)
	case own != nil:
		refused = own      // set even if the next line panics
		f.dropLastLocked() // it is the latest one, as the encoder is locked
	case !errors.Is(err, ipc.ErrClosed):
		// The channel is broken. The life ends, and its end gives the batch back, because nothing
		// was published.
		f.session.fail(err)
	}
	return refused
}

// timeout ends a stub whose execute did not return in time. It reads the ring first: a published
// response is in time.
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

// findLocked returns the index of a batch in current, or -1.
func (b *batches) findLocked(number uint64) int {
	for i := range b.count {
		if b.current[i].number == number {
			return i
		}
	}
	return -1
}

// cancelled returns the handle of a task that the stub has or has left open, and whether the
// clients of its whole batch have gone.
func (f *inFlight) cancelled(task *backend.Task) (handle uint64, inside, abandoned bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up {
		return 0, false, false
	}
	if handle, inside = f.handleLocked(task); inside {
		abandoned = f.abandonedLocked(handle >> 32)
	}
	return handle, inside, abandoned
}

// handleLocked returns the handle of a task that the stub has, or has left open. It does not read
// task.Handle: if the task was withdrawn, another instance may be writing it.
func (f *inFlight) handleLocked(task *backend.Task) (handle uint64, ok bool) {
	if s := f.open.byTask[task]; s != nil {
		return s.handle, true
	}
	for i := range f.count {
		for j, t := range f.current[i].batch.Tasks {
			if t == task {
				return f.current[i].handleOf(j), true
			}
		}
	}
	return 0, false
}

// abandonedLocked reports whether the clients of all unanswered requests of a batch have gone. The
// batch is given by the low 32 bits of its number.
func (f *inFlight) abandonedLocked(batch uint64) bool {
	tasks := f.openOfLocked(batch)
	for i := range f.count {
		if b := &f.current[i]; b.number&math.MaxUint32 == batch {
			for at, task := range b.batch.Tasks {
				if s := b.stream(at); s == nil || !s.ended {
					tasks = append(tasks, task) // bound: the batch
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

// tasksOf returns the tasks of a batch in execution, or those that it has left open.
func (f *inFlight) tasksOf(batch uint64) (tasks []*backend.Task, executing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if batch > f.number {
		return nil, false, ipc.Broken("handle", "INFER for batch %d, the last one is %d", batch, f.number)
	}
	if at := f.findLocked(batch); at >= 0 {
		return f.current[at].batch.Tasks, true, nil
	}
	return f.openOfLocked(batch), false, nil
}

// tracedBy returns the request with this trace text, or nil if it has ended: nothing is traced
// below it then.
func (f *inFlight) tracedBy(text []byte) *infer.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.count {
		for _, task := range f.current[i].batch.Tasks {
			if task.Request.Trace.Is(text) {
				return task.Request
			}
		}
	}
	for task := range f.open.byTask {
		if task.Request.Trace.Is(text) {
			return task.Request
		}
	}
	return nil
}

// requestsOf lists the ids of a batch's requests that the stub has; requests without an id are left
// out.
func (f *inFlight) requestsOf(batch uint64) []string {
	if batch == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	add := func(task *backend.Task) {
		if id := task.Request.ID; id != "" && len(ids) < maxShownRequests {
			ids = append(ids, output.CutAt(id, maxShownID))
		}
	}
	if at := f.findLocked(batch); at >= 0 {
		for _, task := range f.current[at].batch.Tasks {
			add(task)
		}
		return ids
	}
	for handle, s := range f.open.byHandle { // it was executed and left its requests open
		if handle>>32 == batch&math.MaxUint32 {
			add(s.task)
		}
	}
	slices.Sort(ids)
	return ids
}
