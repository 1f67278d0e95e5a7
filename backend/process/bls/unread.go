package bls

import "github.com/nereid-serving/nereid/infer"

// A model that waits for one of its requests does not read the responses of
// another, and the model that makes those must not be kept waiting: its instance
// may be what the first request needs. So a stream counts in its window only as
// long as it is the one request of its execution. From then on its responses
// are kept here, as many as come.

// joinLocked notes a request and returns the streams that a client may fail to
// read from now on; the caller loosens them without a lock.
//
// bound: maxRequests
func (b *Requests) joinLocked(q *request) (unread []*request) {
	for _, s := range b.tight {
		if s.batch == q.batch {
			unread = append(unread, s)
			delete(b.tight, s.number)
		}
	}
	if !q.stream {
		return unread
	}
	for _, other := range b.all {
		if other != q && other.batch == q.batch {
			return append(unread, q)
		}
	}
	if b.tight == nil {
		b.tight = make(map[uint64]*request)
	}
	b.tight[q.number] = q
	return unread
}

// loosen lets go of the places that responses have in the window of a stream.
func (q *request) loosen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loose = true
	for _, r := range q.kept {
		releaseSlot(r)
	}
}

func releaseSlot(r *infer.Response) {
	if r.Slot != nil {
		r.Slot.Release()
		r.Slot = nil
	}
}
