package replies

import (
	"sync"

	"github.com/nereid-serving/nereid/budget"
)

// Streams is the set of a front end's streams, whose replies are charged to one account.
type Streams struct {
	account *budget.Account

	mu     sync.Mutex
	queues map[*Queue]struct{}
}

// NewStreams returns an empty set.
func NewStreams(account *budget.Account) *Streams {
	return &Streams{account: account, queues: make(map[*Queue]struct{})}
}

// Count returns the number of streams.
func (w *Streams) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues)
}

// Enter adds a stream. Leave must follow.
func (w *Streams) Enter(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[q] = struct{}{} // bound: the streams of the connections
}

// Leave removes a stream.
func (w *Streams) Leave(q *Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.queues, q)
}

// ownShare is the part of the memory for replies, a quarter. A stream with more counts the reply
// that it is adding when streams are compared.
const ownShare = 4

// relieve makes room for n bytes of a reply to the stream own: it ends the stream with the largest
// charge, preferably an unread one. A stream that would itself have a large part of the memory does
// not end smaller ones. The caller holds no queue's lock.
//
// Many goroutines call relieve at the same time when the account is full, as each request adds its
// own reply. With w.mu held, each checks again whether there is room and ends a stream only if not.
// An ended stream has given its charge back before w.mu is released, so they do not each end
// another stream.
func (w *Streams) relieve(own *Queue, n int64) {
	w.mu.Lock()
	if w.account.Try(budget.Replies, n) {
		w.account.Give(budget.Replies, n) // chargeLocked takes it again
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
