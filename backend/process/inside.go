package process

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
)

// depth is how many batches a stub may have: the batch in execution, and the next,
// so that it need not wait for this process to wake up between short ones.
const depth = 2

// batches are the batches of a stub, and what became of the last ones. Guarded by
// Instance.mu where nothing else is said.
type batches struct {
	inside [depth]inside // the batch in execution first
	count  int           // of them
	number uint64        // of the batch that was handed over last
	freed  int64         // ns, when the last answer came
	asked  withdrawal
	timer  *time.Timer // of the first batch, nil without a limit
	// late is a batch that was published when the life had ended already.
	late struct{ number, position uint64 }

	// encoded is the last batch of whose requests everything has been read: one
	// that is answered earlier is not known to the stub yet.
	encoded atomic.Uint64
	handed  atomic.Int64 // ns, when the latest batch was published
	// withdrawing counts the goroutines that give a batch back which was asked for.
	withdrawing sync.WaitGroup
}

// inside is a batch that the stub has.
type inside struct {
	batch    *backend.Batch
	number   uint64
	handles  []uint64 // of the batch's tasks, in order
	position uint64   // of the batch's frame
	begin    int64    // ns, when the batch was given to the instance
	sent     int64    // ns, when its frame was published; 0 until then
	// streams are those of its requests for which the stub has sent a response by
	// itself, in the places of the tasks; nil if there is none.
	streams []*stream
}

// withdrawal is a batch ahead that was asked back and of which the stub has not
// yet said what it did with it. There is one at most, as the stub looks at one
// number only.
type withdrawal struct {
	number uint64 // 0: there is none
	// certain is true if the stub will skip it: it is not inside any more, and
	// only the stub's notice is expected.
	certain bool
}

// findLocked returns the place of a batch that the stub has, -1 if it has not.
func (b *batches) findLocked(number uint64) int {
	for i := range b.count {
		if b.inside[i].number == number {
			return i
		}
	}
	return -1
}

// handleLocked returns the handle of a task that the stub has, or has left open. The task's own is
// not looked at: if it was withdrawn, another instance may be writing it.
func (l *life) handleLocked(task *backend.Task) (handle uint64, ok bool) {
	if s := l.open.byTask[task]; s != nil {
		return s.handle, true
	}
	for i := range l.count {
		for j, t := range l.inside[i].batch.Tasks {
			if t == task {
				return l.inside[i].handles[j], true
			}
		}
	}
	return 0, false
}

// popLocked takes the first batch, which the caller ends.
func (l *life) popLocked() inside {
	first := l.inside[0]
	copy(l.inside[:], l.inside[1:])
	l.count--
	l.inside[l.count] = inside{}
	l.limitLocked()
	l.emptiedLocked()
	return first
}

// answeredLocked is popLocked for a batch that the stub is done with: it goes on
// with the next one, or is free. The batch is the caller's when it returns; a panic
// leaves it to the end of the life.
func (l *life) answeredLocked(arrived int64) {
	first, whole := l.inside[0], false
	defer func() {
		if !whole {
			l.left.batches = append(l.left.batches, first)
		}
	}()
	l.popLocked()
	l.freed = arrived
	if l.count == 0 {
		l.in.moveLocked(Ready)
	}
	whole = true
}

// dropLastLocked takes back the batch that was handed over last, which the stub
// does not execute.
func (l *life) dropLastLocked() {
	l.count--
	l.inside[l.count] = inside{}
	if l.count == 0 {
		l.limitLocked()
		l.emptiedLocked()
		l.in.moveLocked(Ready)
	}
}

// hasBatch reports whether the stub has something to answer.
func (l *life) hasBatch() bool {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	return l.count > 0
}

// limit is limitLocked for a batch that has just been put inside.
func (l *life) limit() {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	l.limitLocked()
}

// limitLocked limits the time of the batch that is executed from now on.
func (l *life) limitLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	limit := l.in.model.settings.ExecuteTimeout
	if limit > 0 && l.count > 0 {
		number := l.inside[0].number
		l.timer = boundary.AfterFunc(l.in.log, boundary.Life, limit, func() { l.timeout(number, limit) }, l.fail)
	}
}
