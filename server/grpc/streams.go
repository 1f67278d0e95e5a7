package grpc

import (
	"sync"

	"github.com/nereid-serving/nereid/memory"
)

// streams has the streams of a front end, whose replies are on one account.
type streams struct {
	account *memory.Account

	mu     sync.Mutex
	queues map[*queue]struct{}
}

// newStreams returns the streams of a front end, of which there are none.
func newStreams(account *memory.Account) *streams {
	return &streams{account: account, queues: make(map[*queue]struct{})}
}

// count returns how many streams there are.
func (w *streams) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues)
}

func (w *streams) enter(q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[q] = struct{}{}
}

func (w *streams) leave(q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queues, q)
}

// relieve makes room for a reply of one stream: it ends the stream that is charged
// most, of those that are left unread if there are any. The caller holds no queue's
// lock.
func (w *streams) relieve(own *queue) {
	w.mu.Lock()
	worst, most, left := own, int64(0), false
	for q := range w.queues {
		if cost, unread := q.burden(); cost > 0 && (unread && !left || unread == left && cost > most) {
			worst, most, left = q, cost, unread
		}
	}
	w.mu.Unlock()
	if left {
		worst.fail(errStalled)
	} else {
		worst.fail(errFull)
	}
}
