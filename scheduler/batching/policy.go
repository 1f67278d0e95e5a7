package batching

import (
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Policy says how requests wait at one level of priority. The zero value has no limits.
type Policy struct {
	Size  int  // requests that may wait; 0: no limit
	Delay bool // a request past its deadline waits until no other does; otherwise it is rejected

	timeout  time.Duration // of each request; 0: none
	override bool          // a request may ask for a shorter timeout
}

func newPolicy(p *kserve.ModelQueuePolicy) Policy {
	return Policy{
		Size: int(p.GetMaxQueueSize()), timeout: Micros(p.GetDefaultTimeoutMicroseconds()),
		override: p.GetAllowTimeoutOverride(), Delay: p.GetTimeoutAction() == kserve.ModelQueuePolicy_DELAY,
	}
}

// Forever is the longest Duration that Micros returns.
const Forever = 100 * 365 * 24 * time.Hour

// Micros returns n microseconds, at most Forever.
func Micros(n uint64) time.Duration {
	const most = uint64(Forever / time.Microsecond)
	return time.Duration(min(n, most)) * time.Microsecond
}

// MadeAt returns when the timeout of a request begins that a scheduler accepts now: when a model
// made it, if that is known. Times are ns of backend.Now.
func MadeAt(req *infer.Request, now int64) int64 {
	if req.Made == 0 || req.Made > now {
		return now
	}
	return req.Made
}

// DeadlineOf returns the deadline of a request that is queued now, in ns of backend.Now; 0: none. A
// request's own timeout can only shorten the policy's, so it has no effect if the policy has none.
func (p *Policy) DeadlineOf(req *infer.Request, now int64) int64 {
	timeout := p.timeout
	if own := Micros(req.TimeoutMicros); p.override && own > 0 && own < timeout {
		timeout = own
	}
	if timeout == 0 || now > 1<<63-1-int64(timeout) {
		return 0
	}
	return now + int64(timeout)
}

// Plain reports whether the policy has no limits.
func (p *Policy) Plain() bool { return p.Size == 0 && p.timeout == 0 && !p.override }
