package batching

import (
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/kserve"
)

// Policy is what happens to the requests that wait at one level of priority. The
// zero value lets as many wait as come, for as long as it takes.
type Policy struct {
	Size  int  // how many may wait; 0: as many as come
	Delay bool // past its deadline a request waits until no other does; else it is rejected

	timeout  time.Duration // how long each waits at most; 0: for ever
	override bool          // a request may have a shorter timeout of its own
}

func newPolicy(p *kserve.ModelQueuePolicy) Policy {
	return Policy{
		Size: int(p.GetMaxQueueSize()), timeout: Micros(p.GetDefaultTimeoutMicroseconds()),
		override: p.GetAllowTimeoutOverride(), Delay: p.GetTimeoutAction() == kserve.ModelQueuePolicy_DELAY,
	}
}

// Forever is the longest Duration that Micros returns.
const Forever = 100 * 365 * 24 * time.Hour

// Micros returns n microseconds, Forever if that is less.
func Micros(n uint64) time.Duration {
	const most = uint64(Forever / time.Microsecond)
	return time.Duration(min(n, most)) * time.Microsecond
}

// MadeAt returns when the timeout of a request begins that the scheduler accepts now:
// when a model made it, if that is known. Times are ns of backend.Now.
func MadeAt(req *infer.Request, now int64) int64 {
	if req.Made == 0 || req.Made > now {
		return now
	}
	return req.Made
}

// DeadlineOf returns when a request that begins to wait now has waited for too
// long, in ns of backend.Now, 0 for never. Its own timeout counts only if it is shorter than the
// policy's, so never where the policy has none.
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

// Plain reports whether requests wait as if there were no policy.
func (p *Policy) Plain() bool { return p.Size == 0 && p.timeout == 0 && !p.override }
