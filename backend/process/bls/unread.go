package bls

import "github.com/nereid-serving/nereid/infer"

// A model that waits for one of its requests does not read the responses of another, and the model
// that makes those must not be kept waiting: the first request may need its instance. So a stream
// counts in its window only while it is the only request of its execution. After that, all its
// responses wait here.

// joinLocked enters a request. It returns the streams whose client may stop reading them from now
// on; the caller makes them leave their windows, without a lock.
//
// bound: maxRequests
func (b *Requests) joinLocked(q *request) (unread []*request) {
	for _, s := range b.windowed {
		if s.batch == q.batch {
			unread = append(unread, s)
			delete(b.windowed, s.number)
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
	if b.windowed == nil {
		b.windowed = make(map[uint64]*request)
	}
	b.windowed[q.number] = q
	return unread
}

// leaveWindow releases the slots of all responses in the stream's window.
func (q *request) leaveWindow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.windowless = true
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
