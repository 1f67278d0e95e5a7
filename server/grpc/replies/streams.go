package replies

import (
	"sync"

	"github.com/nereid-serving/nereid/budget"
)

// Streams has the streams of a front end, whose replies are on one account.
type Streams struct {
	account *budget.Account

	mu     sync.Mutex
	queues map[*Queue]struct{}
}

// NewStreams returns the streams of a front end, of which there are none.
func NewStreams(account *budget.Account) *Streams {
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
	w.queues[q] = struct{}{} // bound: the streams of the connections
}

// Leave forgets a stream.
func (w *Streams) Leave(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queues, q)
}

// ownShare is the part of the memory for replies, a quarter, above which a stream is charged for
// the reply that it adds when streams are compared.
const ownShare = 4

// relieve makes room for n bytes of a reply of one stream: it ends the stream that is
// charged most, of the unread streams if there are any. A stream that would itself have a large
// part of the memory does not end smaller ones. The caller holds no queue's lock.
//
// Many goroutines come here at once when the account is full, as each request adds its own
// reply. One after another they look whether there is room by now, and end a stream only if
// there is none: a stream that has been ended has given its charge back before w.mu is free.
// Else each of them would end another stream, and the last one its own.
func (w *Streams) relieve(own *Queue, n int64) {
	w.mu.Lock()
	if w.account.Try(budget.Replies, n) {
		w.account.Give(budget.Replies, n) // chargeLocked takes it
		w.mu.Unlock()
		return
	}
	worst, most, left := own, int64(0), false
	bound, queues := w.account.Most(budget.Replies), w.queues
	if n > bound {
		queues = nil // no other stream can help
	}
	if cost, _ := own.burden(); cost+n > bound/ownShare {
		most = cost + n
	}
	for q := range queues {
		if cost, unread := q.burden(); cost > 0 && (unread && !left || unread == left && cost > most) {
			worst, most, left = q, cost, unread
		}
	}
	why := errFull
	if left {
		why = errStalled
	}
	first, dropped := worst.end(why)
	w.mu.Unlock() // before replies are released
	worst.ended(first, dropped)
}
