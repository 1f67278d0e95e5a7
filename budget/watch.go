package budget

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// plain is the size of the heap beyond the charged memory: the server itself, and garbage.
	plain = 48 << 20
	// headroomMost is the largest headroom that a control group must have. A control group with less
	// than tightShare times that headroom is tight: garbage is collected early, because models'
	// processes may need the memory at once. A control group with less than twice as much as a tight
	// one is checked often.
	headroomMost = 256 << 20
	tightShare   = 4
	// Sweeps collect the heap and return memory to the system. The interval between them is
	// sweepApart, pressedApart while memory is short or tight, quietApart while the server is idle,
	// and at least sweepShare times the duration of the last one.
	sweepApart   = time.Second
	pressedApart = 200 * time.Millisecond
	sweepShare   = 4
	quietApart   = 5 * time.Second
	// quietRate is the maximum allocation rate of an idle server, in bytes a second, and quietLooks
	// the number of consecutive idle seconds before a sweep. A sweep needs a heap that has grown by
	// worthwhile.
	quietRate  = 1 << 20
	quietLooks = 2
	worthwhile = 8 << 20
	// tightGarbage is the garbage that is worth a sweep if the control group is tight: a server may
	// stay so for long.
	tightGarbage = 32 << 20
	// patience is the time for rejections and sweeps to take effect before a holder is ended,
	// unless the memory is nearly exhausted. endedMin is the minimum size of a holder to be ended.
	patience = 5 * time.Second
	endedMin = 1 << 20
	// sayApart is the interval between log lines about the same subject.
	sayApart    = 10 * time.Second
	reportApart = time.Hour
	// limitApart is the time for which a lower limit of the heap must be enough, and collectShare
	// the share of the processor time that collections may take before garbage gets more room.
	limitApart   = time.Second
	collectShare = 0.25
)

// system is the process and its machine as seen by a watcher. Tests replace it.
type system struct {
	heap    func() heapState
	group   func() (used, limit int64) // the tightest control group; limit 0 without one
	collect func()                     // collects the heap and returns its free memory
	setGo   func(limit int64)          // sets the memory limit of the Go runtime
	now     func() time.Time
}

// watcher compares the account with the memory that the process really has.
type watcher struct {
	*Account
	system
	log       zerolog.Logger
	limitHeap bool

	base  int64     // of the heap in use at the start, before anything was charged
	found pressure  // by the last check
	swept time.Time // when the last sweep ended
	took  time.Duration
	// after is the size of the heap after the last sweep, beyondAfter its uncharged part.
	after, beyondAfter int64
	again              bool // an idle server has to sweep once more

	since    time.Time // when memory became short, or a holder was ended
	swollen  bool      // no sweep has followed the last end of a holder
	said     time.Time // when the log reported that memory is short
	unsaid   bool      // the present shortage was not logged
	reported time.Time // no report about uncharged memory before this time

	second    time.Time // when allocated was read
	allocated int64
	quiet     int // consecutive seconds with hardly any allocation

	heapLimit        int64
	lower            time.Time // since when a lower limit is enough; zero if it is not
	collecting, busy float64   // as in heapState
	costly           bool      // collections exceeded their share
}

func newWatcher(a *Account, c Watch, s system) *watcher {
	now := s.now()
	h := s.heap()
	return &watcher{
		Account: a, system: s, log: c.Log, limitHeap: c.LimitHeap,
		base: h.live + h.other, after: h.size, second: now, allocated: h.allocated,
	}
}

// allowance is the size of the heap beyond the charged memory above which the rest counts as
// Released.
func (a *Account) allowance() int64 { return plain + a.limit/32 }

// headroom is the memory that a control group with a limit must have left.
func headroom(limit int64) int64 { return min(limit/20, headroomMost) }

// pressure is the result of a check of the memory.
type pressure struct {
	real, most  int64 // the server's own memory, and its maximum
	used, limit int64 // of the tightest control group; limit 0 without one
	high        bool  // memory is short
	ours        bool  // the server itself has much of the memory
	near        bool  // memory may soon be short
	tight       bool  // the group has little left, and the server has some of it
	dire        bool  // memory is nearly exhausted
	last        bool  // the kernel is about to kill
}

// real returns the server's own memory: of the Go runtime, the pool of requests and the memory that
// models' processes have reserved for outputs.
func (a *Account) real(heap int64) int64 {
	for k, s := range shares {
		if !s.heap && Kind(k) != Released {
			heap += a.Used(Kind(k))
		}
	}
	return heap
}

// Real returns the memory of the server itself.
func (a *Account) Real() int64 { return a.real(readHeap()().size) }

// Pressed reports whether memory is short.
func (a *Account) Pressed() bool { return a.pressed.Load() }

// scarce is set by each check of a watcher: the control group belongs to the whole process.
var scarce atomic.Bool

// Scarce reports whether memory is so scarce that the kernel may have to reclaim some inside any
// system call that needs memory. In a control group the process that needs it does this work, and
// has to wait. Without a watcher nothing is known, and Scarce is false.
func Scarce() bool { return scarce.Load() }

// Ended returns the number of holders that were ended because memory was short.
func (a *Account) Ended() int64 { return a.keeper.ended.Load() }

// onHeap returns the charged memory on the heap.
func (a *Account) onHeap() (charged int64) {
	for k, s := range shares {
		if s.heap {
			charged += a.Used(Kind(k))
		}
	}
	return charged
}

// look measures the memory, acts on the result, and returns the time until the next check.
func (w *watcher) look() time.Duration {
	now := w.now()
	h := w.measure()
	short := w.found.high && w.maySweep(now, w.shortApart())
	tight := w.found.tight && w.beyond(h) > w.beyondAfter+tightGarbage && w.maySweep(now, pressedApart)
	if short || tight || w.blocked(now, h) || w.suspicious(now, h) || w.idle(now, h) {
		if short || tight {
			for _, give := range w.short {
				give()
			}
		}
		h = w.sweep(now)
	}
	w.press(now)
	w.limitGo(now, h)
	scarce.Store(w.pressed.Load() || w.found.real > w.found.most/2 || w.found.limit > 0 && w.found.used > w.found.limit/4*3)
	if w.pressed.Load() || w.found.near {
		return lookApart
	}
	return idleApart
}

// measure reads the heap, updates Released and judges the result.
func (w *watcher) measure() heapState {
	noted := w.Used(Released)
	h := w.heap()
	// Memory that is released from here on is added to Released.
	if released := max(w.beyond(h)-w.allowance(), 0); released < noted {
		w.give(Released, noted-released)
	} else {
		w.Must(Released, released-noted)
	}
	w.found = w.judge(h)
	return h
}

// beyond returns the bytes of the heap beyond the charged memory and its initial size.
func (w *watcher) beyond(h heapState) int64 { return max(h.size-w.base-w.onHeap(), 0) }

// judge decides whether memory is short. It is if the server has more than the account allows, or
// if its control group has hardly any left and the server could give up the missing amount. A group
// that models fill by themselves is no reason, because the server could not help. While memory is
// short, the thresholds for recovery are stricter.
func (w *watcher) judge(h heapState) pressure {
	p := pressure{real: w.real(h.size), most: w.limit + w.own[Cache] + w.allowance() + w.base}
	p.used, p.limit = w.group()
	over, slack, wanted, worth := p.real-p.most, int64(0), headroom(p.limit), headroom(p.limit)
	if w.pressed.Load() {
		slack, wanted, worth = w.allowance()/2, 2*wanted, worth/2
	}
	// The cache has its own limit, which the operator has set.
	own, left := p.real-w.base-plain-w.Used(Cache), p.limit-p.used
	scarce := p.limit > 0 && left < wanted && own >= worth
	p.high = over > -slack || scarce
	some, little := p.limit > 0 && own >= headroom(p.limit), tightShare*headroom(p.limit)
	p.tight = some && left < little
	p.near = p.real > p.most/4*3 || some && left < 2*little
	p.ours = over > 0 || p.limit > 0 && own >= p.limit/8
	p.last = scarce && left < headroom(p.limit)/2
	p.dire = over > w.allowance() || p.last
	return p
}

// sweep collects the heap and returns its free memory, and reports unexpected remains.
func (w *watcher) sweep(now time.Time) heapState {
	charged, before := w.onHeap(), w.heap().size
	w.collect()
	w.swept = w.now()
	w.took, w.swollen = w.swept.Sub(now), false
	h := w.measure()
	w.after, w.beyondAfter = h.size, w.beyond(h)
	// Memory in use now may become garbage once the server is idle, without growth of the heap that
	// would show it.
	w.again = w.quiet < quietLooks || before-h.size >= worthwhile
	if charged = max(charged, w.onHeap()); w.uncharged(h, charged) && !now.Before(w.reported) {
		w.reported = now.Add(reportApart)
		w.log.Warn().Int64("bytes", h.live+h.other).Int64("charged", charged).
			Msg("the heap is much larger than the charged memory; this is a bug in the server, please report it")
	}
	return h
}

// maySweep reports whether enough time has passed since the last sweep.
func (w *watcher) maySweep(now time.Time, apart time.Duration) bool {
	return now.Sub(w.swept) >= max(apart, sweepShare*w.took)
}

// shortApart is the interval between sweeps while memory is short.
func (w *watcher) shortApart() time.Duration {
	if w.found.dire || w.swollen || !w.pressed.Load() {
		return pressedApart
	}
	return sweepApart
}

// blocked reports whether requests are rejected because of memory that a sweep may return.
func (w *watcher) blocked(now time.Time, h heapState) bool {
	beyond := w.beyond(h)
	return beyond > w.allowance() && beyond > w.beyondAfter+worthwhile && w.maySweep(now, sweepApart)
}

// suspicious reports whether the last collection found more uncharged memory in use than expected.
// A sweep finds out whether it still is.
func (w *watcher) suspicious(now time.Time, h heapState) bool {
	return w.uncharged(h, w.onHeap()) && !now.Before(w.reported) && w.maySweep(now, sayApart)
}

// uncharged reports whether the heap is larger than twice the charged memory plus the server's own
// needs.
func (w *watcher) uncharged(h heapState, charged int64) bool {
	return h.live+h.other > 2*charged+2*plain+w.base
}

// idle reports whether the server has been idle for a while and a sweep is worthwhile. The runtime
// would keep that memory until its next collection, which may be minutes away.
func (w *watcher) idle(now time.Time, h heapState) bool {
	if spent := now.Sub(w.second); spent >= idleApart-lookApart {
		if w.quiet++; h.allocated-w.allocated > int64(spent.Seconds()*quietRate) {
			w.quiet = 0
		}
		w.second, w.allocated = now, h.allocated
	}
	return w.quiet >= quietLooks && (w.again || h.size > w.after+max(worthwhile, w.after/8)) && w.maySweep(now, quietApart)
}

// press rejects large bodies while memory is short, and ends the largest holder if that is not
// enough.
func (w *watcher) press(now time.Time) {
	p, pressed := w.found, w.pressed.Load()
	switch {
	case p.high && !pressed:
		w.pressed.Store(true)
		w.since = now
		if w.unsaid = now.Sub(w.said) < sayApart; !w.unsaid {
			w.said = now
			w.figures(w.log.Warn()).Msg("memory is low, large requests are rejected")
		}
	case !p.high && pressed:
		w.pressed.Store(false)
		if !w.unsaid {
			w.figures(w.log.Info()).Msg("memory is no longer low")
		}
	case p.high && p.ours && !w.swollen && (p.dire || now.Sub(w.since) >= patience):
		w.end(now)
	}
}

// end ends the largest holder. Small holders are ended only if the kernel would otherwise kill the
// whole server, and never because of unexplained figures.
func (w *watcher) end(now time.Time) {
	least := int64(endedMin)
	if w.found.last {
		least = 0
	}
	h, held := w.endLargest(least)
	if h == nil {
		return
	}
	w.since, w.swollen = now, true
	w.keeper.ended.Add(1)
	w.figures(w.log.Warn().Str("holder", h.String()).Int64("held", held)).Msg("closed the largest holder of memory because memory is low")
}

// figures adds the results of the last check.
func (w *watcher) figures(e *zerolog.Event) *zerolog.Event {
	p := w.found
	e.Int64("bytes", p.real).Int64("charged", w.Total()+w.Used(Cache)-w.Used(Released)).Int64("limit", p.most)
	if p.limit > 0 {
		e.Int64("group_bytes", p.used).Int64("group_limit", p.limit)
	}
	return e
}

// limitGo adjusts the memory limit of the Go runtime to the charged memory, so that garbage does
// not double the server's size. The limit leaves enough space above the memory in use to avoid
// continuous collections. It rises at once. It falls with a delay, because each change briefly
// stops all goroutines; in a tight control group it falls at once.
func (w *watcher) limitGo(now time.Time, h heapState) {
	if !w.limitHeap {
		return
	}
	if busy := h.working - w.busy; busy > 0 { // a collection has happened
		w.costly = h.collecting-w.collecting > collectShare*busy
		w.collecting, w.busy = h.collecting, h.working
	}
	room := h.live / 2
	if w.costly {
		room = h.live // as without a limit
	}
	target := max(w.onHeap()+w.allowance(), h.other+h.live+room)
	switch {
	case w.found.tight:
		if target < w.heapLimit+worthwhile/8 && target > w.heapLimit-worthwhile {
			return
		}
	case target > w.heapLimit:
		target += target / 8
	case target > w.heapLimit/4*3:
		w.lower = time.Time{}
		return
	case w.lower.IsZero():
		w.lower = now
		return
	case now.Sub(w.lower) < limitApart:
		return
	}
	w.heapLimit, w.lower = target, time.Time{}
	w.setGo(target)
}
