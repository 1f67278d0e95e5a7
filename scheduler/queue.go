package scheduler

import (
	"github.com/nereid-serving/nereid/internal/heap"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// queue is a list of requests in the order of their execution.
type queue struct {
	List[*request]
	length int
}

func (q *queue) pushBack(r *request) {
	q.List.PushBack(r)
	q.length++
}

func (q *queue) pushFront(r *request) {
	q.List.PushFront(r)
	q.length++
}

func (q *queue) remove(r *request) {
	q.List.Remove(r)
	q.length--
}

// lines are the queues of a batcher. Each priority, the highest first, has one queue for requests
// in time and one for requests past their deadline, which wait until no other request does.
type lines struct {
	queues []queue           // two for each level
	levels []batching.Policy // of each level
	length int               // of all
	bls    int               // BLS requests
	// Requests that are rejected at their deadlines.
	deadlines heap.Heap[*request]
}

func newLines(levels []batching.Policy) lines {
	return lines{
		queues: make([]queue, 2*len(levels)), levels: levels, // bound: two for each of the batching.Rules' levels
		deadlines: heap.New(func(a, b *request) bool { return a.deadline < b.deadline }, func(r *request) *int { return &r.alarm }),
	}
}

// fresh returns the index of a level's queue, and late that of its overdue requests.
func fresh(level int) int { return 2 * level }
func late(level int) int  { return 2*level + 1 }

func isLate(line int) bool { return line%2 == 1 }

func (l *lines) policyOf(line int) *batching.Policy { return &l.levels[line/2] }

// full reports whether the queue of a level has reached the limit of its policy.
func (l *lines) full(level int) bool {
	most := l.levels[level].Size
	return most > 0 && l.queues[fresh(level)].length+l.queues[late(level)].length >= most
}

// pushBack appends a request to its line.
func (l *lines) pushBack(r *request) {
	l.queues[r.line].pushBack(r)
	l.added(r)
}

// pushFront puts a request in front of its line.
func (l *lines) pushFront(r *request) {
	l.queues[r.line].pushFront(r)
	l.added(r)
}

func (l *lines) added(r *request) {
	r.queued = true
	l.length++
	if r.task.Request.Caller != nil {
		l.bls++
	}
	if r.deadline != 0 && !isLate(r.line) && !l.policyOf(r.line).Delay {
		l.deadlines.Push(r)
	}
}

func (l *lines) remove(r *request) {
	l.queues[r.line].remove(r)
	r.queued = false
	l.length--
	if r.task.Request.Caller != nil {
		l.bls--
	}
	if l.deadlines.Has(r) {
		l.deadlines.Remove(r)
	}
}

// delay moves a request past its deadline behind the requests in time.
func (l *lines) delay(r *request) {
	l.remove(r)
	r.line = late(r.line / 2)
	l.pushBack(r)
}

// following returns the request after r in the order of execution, or the first if r is nil. It
// returns nil at the end.
func (l *lines) following(r *request) *request {
	line := 0
	if r != nil {
		if r.After != nil {
			return r.After
		}
		line = r.line + 1
	}
	for ; line < len(l.queues); line++ {
		if first := l.queues[line].First; first != nil {
			return first
		}
	}
	return nil
}

// nextDeadline returns the earliest of deadlines, or 0.
func (l *lines) nextDeadline() int64 {
	if first := l.deadlines.First(); first != nil {
		return first.deadline
	}
	return 0
}
