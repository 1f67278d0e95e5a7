package scheduler

import (
	"container/heap"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// policy is what happens to the requests that wait at one level of priority.
type policy struct {
	size     int           // how many may wait; 0: as many as come
	timeout  time.Duration // how long each waits at most; 0: for ever
	override bool          // a request may have a shorter timeout of its own
	delay    bool          // past its deadline a request waits until no other does; else it is rejected
}

func newPolicy(p *kserve.ModelQueuePolicy) policy {
	return policy{
		size: int(p.GetMaxQueueSize()), timeout: micros(p.GetDefaultTimeoutMicroseconds()),
		override: p.GetAllowTimeoutOverride(), delay: p.GetTimeoutAction() == kserve.ModelQueuePolicy_DELAY,
	}
}

// micros is a number of microseconds, the longest Duration if it is longer.
func micros(n uint64) time.Duration {
	const most = uint64(forever / time.Microsecond)
	return time.Duration(min(n, most)) * time.Microsecond
}

// madeAt is when the timeout of a request begins that comes now.
func madeAt(req *infer.Request, now int64) int64 {
	if req.Made == 0 || req.Made > now {
		return now
	}
	return req.Made
}

// deadlineOf returns when a request that begins to wait now has waited for too
// long, 0 for never. Its own timeout counts only if it is shorter than the
// policy's, so never where the policy has none.
func (p *policy) deadlineOf(req *infer.Request, now int64) int64 {
	timeout := p.timeout
	if own := micros(req.TimeoutMicros); p.override && own > 0 && own < timeout {
		timeout = own
	}
	if timeout == 0 || now > 1<<63-1-int64(timeout) {
		return 0
	}
	return now + int64(timeout)
}

// plain reports whether requests wait as if there were no policy.
func (p *policy) plain() bool { return p.size == 0 && p.timeout == 0 && !p.override }

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
