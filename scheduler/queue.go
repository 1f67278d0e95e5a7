package scheduler

// queue is a list of requests in the order in which they are to be executed. A
// waiting request knows its neighbours, so it leaves from anywhere at once.
type queue struct {
	first, last *request
	length      int
}

func (q *queue) pushBack(r *request) {
	r.before, r.after = q.last, nil
	if q.last == nil {
		q.first = r
	} else {
		q.last.after = r
	}
	q.last = r
	r.queued = true
	q.length++
}

func (q *queue) pushFront(r *request) {
	r.before, r.after = nil, q.first
	if q.first == nil {
		q.last = r
	} else {
		q.first.before = r
	}
	q.first = r
	r.queued = true
	q.length++
}

func (q *queue) remove(r *request) {
	if r.before == nil {
		q.first = r.after
	} else {
		r.before.after = r.after
	}
	if r.after == nil {
		q.last = r.before
	} else {
		r.after.before = r.before
	}
	r.before, r.after, r.queued = nil, nil, false
	q.length--
}

// pop takes the first, nil if there is none.
func (q *queue) pop() *request {
	r := q.first
	if r != nil {
		q.remove(r)
	}
	return r
}
