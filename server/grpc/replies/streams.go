package replies

import (
	"sync"

	"github.com/nereid-serving/nereid/memory"
)

// Streams has the streams of a front end, whose replies are on one account.
type Streams struct {
	account *memory.Account

	mu     sync.Mutex
	queues map[*Queue]struct{}
}

// NewStreams returns the streams of a front end, of which there are none.
func NewStreams(account *memory.Account) *Streams {
	return &Streams{account: account, queues: make(map[*Queue]struct{})}
}

// Count returns how many streams there are.
func (w *Streams) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues)
}

// Enter takes a stream in, until Leave.
func (w *Streams) Enter(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[q] = struct{}{}
}

// Leave forgets a stream.
func (w *Streams) Leave(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queues, q)
}

// relieve makes room for a reply of one stream: it ends the stream that is charged
// most, of the unread streams if there are any. The caller holds no queue's
// lock.
func (w *Streams) relieve(own *Queue) {
	w.mu.Lock()
	worst, most, left := own, int64(0), false
	for q := range w.queues {
		if cost, unread := q.burden(); cost > 0 && (unread && !left || unread == left && cost > most) {
			worst, most, left = q, cost, unread
		}
	}
	// Without the lock: fail releases replies. The worst may have ended by itself or have
	// been relieved of its replies meanwhile; then the caller asks again.
	w.mu.Unlock()
	if left {
		worst.fail(errStalled)
	} else {
		worst.fail(errFull)
	}
}
