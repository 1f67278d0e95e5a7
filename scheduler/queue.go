package scheduler

import (
	"container/heap"

	"github.com/nereid-serving/nereid/scheduler/batching"
	"github.com/nereid-serving/nereid/scheduler/linked"
)

// queue is a list of requests in the order in which they are to be executed.
type queue struct {
	linked.List[*request]
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

// lines are the queues of a batcher: for each priority, the highest first, the
// requests in time, and then the requests that are past their deadline and wait until
// no other does.
type lines struct {
	queues []queue           // two for each level
	levels []batching.Policy // of each level
	length int               // of all
	bls    int               // BLS requests
	// deadlines of the requests that are to be rejected at them.
	deadlines deadlines
}

func newLines(levels []batching.Policy) lines {
	return lines{queues: make([]queue, 2*len(levels)), levels: levels}
}

// fresh is the queue of a level, late that of those past their deadline.
func fresh(level int) int { return 2 * level }
func late(level int) int  { return 2*level + 1 }

func isLate(line int) bool { return line%2 == 1 }

func (l *lines) policyOf(line int) *batching.Policy { return &l.levels[line/2] }

// full reports whether the policy of a level lets no other wait.
func (l *lines) full(level int) bool {
	most := l.levels[level].Size
	return most > 0 && l.queues[fresh(level)].length+l.queues[late(level)].length >= most
}

// pushBack has a request wait at the end of its line.
func (l *lines) pushBack(r *request) {
	l.queues[r.line].pushBack(r)
	l.added(r)
}

// pushFront has it wait before all others of its line.
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
		l.deadlines.add(r)
	}
}

func (l *lines) remove(r *request) {
	l.queues[r.line].remove(r)
	r.queued = false
	l.length--
	if r.task.Request.Caller != nil {
		l.bls--
	}
	if r.alarm > 0 {
		l.deadlines.remove(r)
	}
}

// delay moves a request that is past its deadline behind the requests in time.
func (l *lines) delay(r *request) {
	l.remove(r)
	r.line = late(r.line / 2)
	l.pushBack(r)
}

// following returns the request after another in the whole order, the first of
// all if that is nil; nil if there is none.
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

// deadlines are waiting requests, a heap whose top has the nearest deadline.
type deadlines []*request

// next is the nearest deadline, 0 if there is none.
func (d deadlines) next() int64 {
	if len(d) == 0 {
		return 0
	}
	return d[0].deadline
}

func (d *deadlines) add(r *request)    { heap.Push(d, r) }
func (d *deadlines) remove(r *request) { heap.Remove(d, r.alarm-1) }

// Len implements heap.Interface, as the four below do.
func (d deadlines) Len() int { return len(d) }

// Less has the nearest first.
func (d deadlines) Less(i, j int) bool { return d[i].deadline < d[j].deadline }

// Swap keeps each request's place with it.
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].alarm, d[j].alarm = i+1, j+1
}

// Push adds a *request.
func (d *deadlines) Push(x any) {
	r, _ := x.(*request)
	*d = append(*d, r)
	r.alarm = len(*d)
}

// Pop removes the last.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	r.alarm = 0
	return r
}
