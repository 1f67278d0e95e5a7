package scheduler

import (
	"slices"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/batching"
)

// rules are batching.Rules with the defaults filled in.
type rules struct {
	one       bool // each request is a batch, whatever its size
	most      int64
	preferred []int64
	enough    int64 // the largest of preferred
	delay     time.Duration
	alike     *batching.Alike
	strategy  batching.Strategy
}

func newRules(b *batching.Rules) rules {
	if b == nil {
		return rules{one: true, most: 1, preferred: []int64{1}, enough: 1}
	}
	f := rules{
		most: max(b.MaxSize, 1), preferred: b.Preferred, delay: b.MaxDelay, alike: b.Alike, strategy: b.Strategy,
		one: b.MaxSize < 2,
	}
	if f.one || len(f.preferred) == 0 {
		f.preferred = []int64{f.most}
	}
	f.enough = slices.Max(f.preferred)
	return f
}

// sizeOf returns how much a request adds to the size of a batch.
func (f *rules) sizeOf(r *request) int64 {
	if f.one {
		return 1
	}
	return max(r.task.Request.BatchSize, 1)
}

// forming is the next batch as far as queued requests have been examined. Each is examined once,
// unless something changes before the last picked one.
type forming struct {
	picked []*request // in order, still in their lines
	size   int64
	best   int   // the first best of picked form the largest preferred size; 0: none
	oldest int64 // when the longest waiting of picked was queued
	// expires is the earliest deadline of picked; 0: none.
	expires int64
	sealed  bool // nothing more can join
	include func(*infer.Request) bool
}

// reset discards the batch being formed.
func (f *forming) reset() {
	for i, r := range f.picked {
		r.picked, f.picked[i] = false, nil
	}
	*f = forming{picked: f.picked[:0]}
}

// complete reports whether more requests would not improve the batch.
func (f *forming) complete(by *rules) bool { return f.sealed || f.size >= by.enough }

// lookLocked examines further queued requests as long as they fit into the batch, and drops
// cancelled and expired requests.
func (d *Batcher) lookLocked(now int64) {
	f := &d.forming
	if f.expires != 0 && now >= f.expires {
		f.reset()
	}
	for !f.sealed {
		r := d.followingLocked(now)
		if r == nil {
			return
		}
		if len(f.picked) > 0 && !f.fits(&d.rules, r) {
			f.sealed = true
			return
		}
		f.pick(&d.rules, r)
	}
}

// fits reports whether a request may join the picked ones.
func (f *forming) fits(by *rules, r *request) bool {
	size := f.size + by.sizeOf(r)
	if f.best == 0 && size > by.enough {
		f.best = len(f.picked) // larger than all preferred sizes: better without it
	}
	return size <= by.most && by.alike.Equal(f.picked[0].task.Request, r.task.Request) &&
		(f.include == nil || f.include(r.task.Request))
}

// pick adds a request.
func (f *forming) pick(by *rules, r *request) {
	if len(f.picked) == 0 && by.strategy != nil {
		if f.include = by.strategy.Begin(); f.include != nil {
			f.include(r.task.Request) // its verdict on the first request is ignored: otherwise that would never be executed
		}
	}
	if len(f.picked) == 0 || r.timing[0].Queued < f.oldest {
		f.oldest = r.timing[0].Queued
	}
	if r.deadline != 0 && !isLate(r.line) && (f.expires == 0 || r.deadline < f.expires) {
		f.expires = r.deadline
	}
	r.picked = true
	f.picked = append(f.picked, r) // bound: requests, which are charged
	f.size += by.sizeOf(r)
	if slices.Contains(by.preferred, f.size) {
		f.best = len(f.picked)
	}
	f.sealed = f.size >= by.most
}

// followingLocked returns the first queued request that has not been picked. It drops cancelled and
// expired requests on the way.
func (d *Batcher) followingLocked(now int64) *request {
	var last *request
	if n := len(d.forming.picked); n > 0 {
		last = d.forming.picked[n-1]
	}
	for {
		r := d.waiting.following(last)
		switch {
		case r == nil:
			return nil
		case r.task.Context.Err() != nil:
			d.dropLocked(r, Canceled)
		case r.deadline == 0 || isLate(r.line) || now < r.deadline:
			return r
		case d.waiting.policyOf(r.line).Delay:
			d.waiting.delay(r)
		default:
			d.dropLocked(r, Rejected)
		}
	}
}

// dueLocked returns how many of the picked requests form a batch now, if an instance is idle. If n
// is 0, until is when a batch is due without another request; 0: never.
func (d *Batcher) dueLocked(now int64) (n int, until int64) {
	f := &d.forming
	waits := d.rules.delay > 0 && !d.census.StoppedLocked() // a stopped scheduler gets no more requests
	inTime := !waits || now-f.oldest < int64(d.rules.delay)
	switch {
	case len(f.picked) == 0:
		return 0, 0
	case f.best > 0 && inTime:
		return f.best, 0
	case f.complete(&d.rules), !waits, !inTime:
		return len(f.picked), 0
	}
	until = f.oldest + int64(d.rules.delay)
	if f.expires != 0 { // an expired request moves behind others, which may form a preferred size without it
		until = min(until, f.expires)
	}
	return 0, until
}
