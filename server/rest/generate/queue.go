package generate

import (
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// Queue has the responses of one request between the model that sends them and the client
// that reads them.
type Queue struct {
	more chan struct{} // has a value when there may be something new; sends never wait

	mu      sync.Mutex
	waiting []*infer.Response
	ended   bool
	closed  bool
	err     error
}

// NewQueue returns an empty Queue.
func NewQueue() *Queue { return &Queue{more: make(chan struct{}, 1)} }

// Add is an infer.Sender. Responses that carry nothing are dropped.
func (q *Queue) Add(r *infer.Response) {
	if !r.Empty && q.add(r) {
		return
	}
	r.Release() // not under the lock: it may let the model send again, on this goroutine
}

func (q *Queue) add(r *infer.Response) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r)
	q.tell()
	return true
}

// End says that nothing more is added, and with which error the request was refused; of
// several calls the first counts.
func (q *Queue) End(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended, q.err = true, err
		q.tell()
	}
}

func (q *Queue) tell() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// Next waits until there is something, and hands over all that there is: responses, which
// the caller releases, and whether they are the last. space is memory for the next ones. One
// goroutine calls it.
func (q *Queue) Next(space []*infer.Response) (list []*infer.Response, last bool, err error) {
	for {
		q.mu.Lock()
		list, last, err = q.waiting, q.ended, q.err
		q.waiting = space[:0]
		q.mu.Unlock()
		if len(list) > 0 || last {
			return list, last, err
		}
		space = list
		<-q.more
	}
}

// Close releases what waits, and has what is added from now on released.
func (q *Queue) Close() {
	q.mu.Lock()
	list := q.waiting
	q.waiting, q.closed = nil, true
	q.mu.Unlock()
	for _, r := range list {
		r.Release()
	}
}
