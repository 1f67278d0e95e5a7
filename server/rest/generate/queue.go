package generate

import (
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// queue has the responses of one request between the model that sends them and the client that
// reads them.
type queue struct {
	more chan struct{} // has a value when there may be something new; sends never wait

	mu      sync.Mutex
	waiting []*infer.Response // bound: the responses of the model, which are charged
	ended   bool
	closed  bool
	err     error
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// take is an infer.Sender. It drops empty responses.
func (q *queue) take(r *infer.Response) {
	if !r.Empty && q.add(r) {
		return
	}
	r.Release() // not under the lock: it may let the model send again, on this goroutine
}

func (q *queue) add(r *infer.Response) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r)
	q.tell()
	return true
}

// end marks the end of the responses, with the error of a rejected request. Of several calls the
// first counts.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended, q.err = true, err
		q.tell()
	}
}

func (q *queue) tell() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// next waits for responses or the end and returns all responses, which the caller releases, and
// whether they are the last. space is memory for the next list. One goroutine calls it.
func (q *queue) next(space []*infer.Response) (list []*infer.Response, last bool, err error) {
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

// close releases the waiting responses. take releases later ones.
func (q *queue) close() {
	q.mu.Lock()
	list := q.waiting
	q.waiting, q.closed = nil, true
	q.mu.Unlock()
	for _, r := range list {
		r.Release()
	}
}
