package budget

import (
	"time"

	"github.com/rs/zerolog"
)

const (
	// plain is what the heap may have beyond what is charged: the server itself,
	// and what waits to be collected.
	plain = 48 << 20
	// headroomMost is the most that a control group must have left.
	headroomMost = 256 << 20
	// Sweeps collect the heap and return memory to the system. They are sweepApart apart, in need
	// pressedApart, quietApart if the server is idle, and at least sweepShare times as long as
	// the last one took.
	sweepApart   = time.Second
	pressedApart = 200 * time.Millisecond
	sweepShare   = 4
	quietApart   = 5 * time.Second
	// quietRate is how many bytes an idle server allocates a second at most, quietLooks the
	// seconds in a row for which it must. A sweep is for heaps that have grown by worthwhile.
	quietRate  = 1 << 20
	quietLooks = 2
	worthwhile = 8 << 20
	// patience is how long refusals and sweeps have to relieve the memory before a holder is
	// ended, unless the memory is nearly gone. A holder is worth it from endedMin on.
	patience = 5 * time.Second
	endedMin = 1 << 20
	// sayApart is how far lines of the log about the same are apart.
	sayApart    = 10 * time.Second
	reportApart = time.Hour
	// limitApart is for how long a lower limit of the heap must be enough, and collectShare
	// the share of the processor time that collections may take before garbage gets more room.
	limitApart   = 5 * time.Second
	collectShare = 0.25
)

// system is the process and its machine as a watcher sees them. Tests have another.
type system struct {
	heap    func() heapState
	group   func() (used, limit int64) // the tightest control group; limit 0: there is none
	collect func()                     // has the heap collected and its free memory returned
	setGo   func(limit int64)          // sets the memory limit of the Go runtime
	now     func() time.Time
}

// watcher compares the account with the memory that the process really has.
type watcher struct {
	*Account
	system
	log       zerolog.Logger
	limitHeap bool

	base  int64     // of the heap in use at first, before anything was charged
	found pressure  // by the last look
	swept time.Time // when the last sweep ended
	took  time.Duration
	// after is the size of the heap after the last sweep, beyondAfter what of it was not charged.
	after, beyondAfter int64
	again              bool // an idle server is to sweep once more

	since    time.Time // when memory became short, or a holder was ended
	swollen  bool      // no sweep has followed the last end of a holder
	said     time.Time // when the log was told that memory is short
	unsaid   bool      // the log was not told of this time
	reported time.Time // until then nothing uncharged is reported

	second    time.Time // when allocated was read
	allocated int64
	quiet     int // seconds in a row in which hardly anything was allocated

	heapLimit        int64
	lower            time.Time // since when a lower limit is enough; zero: it is not
	collecting, busy float64   // as heapState has them
	costly           bool      // collections took more than their share
}

func newWatcher(a *Account, c Watch, s system) *watcher {
	now := s.now()
	h := s.heap()
	return &watcher{
		Account: a, system: s, log: c.Log, limitHeap: c.LimitHeap,
		base: h.live + h.other, after: h.size, second: now, allocated: h.allocated,
	}
}

// allowance is what the heap may have beyond what is charged before that counts
// as Released.
func (a *Account) allowance() int64 { return plain + a.limit/16 }

// headroom is what a control group with a limit must have left.
func headroom(limit int64) int64 { return min(limit/20, headroomMost) }

// pressure is what a look at the memory has found.
type pressure struct {
	real, most  int64 // the server's own memory, and how much it may have
	used, limit int64 // of the tightest control group; limit 0: there is none
	high        bool  // memory is short
	ours        bool  // it is the server that has much of it
	dire        bool  // it is nearly gone
	last        bool  // the kernel is about to kill
}

// real returns the server's own memory: of the Go runtime, the pool of requests and what
// models' processes have reserved for outputs.
func (a *Account) real(heap int64) int64 {
	for k, s := range shares {
		if !s.heap && Kind(k) != Released {
			heap += a.Used(Kind(k))
		}
	}
	return heap
}

// Real returns the memory that the server itself has.
func (a *Account) Real() int64 { return a.real(readHeap()().size) }

// Pressed reports whether memory is short.
func (a *Account) Pressed() bool { return a.pressed.Load() }

// Ended returns how many holders were ended because memory was short.
func (a *Account) Ended() int64 { return a.keeper.ended.Load() }

// onHeap returns what is charged that lies on the heap.
func (a *Account) onHeap() (charged int64) {
	for k, s := range shares {
		if s.heap {
			charged += a.Used(Kind(k))
		}
	}
	return charged
}

// look measures the memory, deals with what it finds, and returns when to look again.
func (w *watcher) look() time.Duration {
	now := w.now()
	h := w.measure()
	if short := w.found.high && w.maySweep(now, w.shortApart()); short ||
		w.blocked(now, h) || w.suspicious(now, h) || w.idle(now, h) {
		if short {
			for _, give := range w.short {
				give()
			}
		}
		h = w.sweep(now)
	}
	w.press(now)
	w.limitGo(now, h)
	near := w.found.real > w.found.most/4*3 || w.found.limit > 0 && w.found.limit-w.found.used < 2*headroom(w.found.limit) && w.found.ours
	if w.pressed.Load() || near {
		return lookApart
	}
	return idleApart
}

// measure reads the heap, brings Released up to date and judges what it finds.
func (w *watcher) measure() heapState {
	noted := w.Used(Released)
	h := w.heap()
	// What is released from here on is noted beside it.
	if released := max(w.beyond(h)-w.allowance(), 0); released < noted {
		w.give(Released, noted-released)
	} else {
		w.Must(Released, released-noted)
	}
	w.found = w.judge(h)
	return h
}

// beyond returns the bytes that the heap has beyond what is charged and what it had at first.
func (w *watcher) beyond(h heapState) int64 { return max(h.size-w.base-w.onHeap(), 0) }

// judge finds out whether memory is short: because the server has more than the account
// allows, or because its control group has hardly any left and the server could give up as
// much as is missing. A group that models fill by themselves is no reason, as nothing would
// come of it. While memory is short it takes more to be well again.
func (w *watcher) judge(h heapState) pressure {
	p := pressure{real: w.real(h.size), most: w.limit + w.own[Cache] + w.allowance() + w.base}
	p.used, p.limit = w.group()
	over, slack, wanted, worth := p.real-p.most, int64(0), headroom(p.limit), headroom(p.limit)
	if w.pressed.Load() {
		slack, wanted, worth = w.allowance()/2, 2*wanted, worth/2
	}
	// The cache has its own bound, which the operator has set.
	own, left := p.real-w.base-plain-w.Used(Cache), p.limit-p.used
	scarce := p.limit > 0 && left < wanted && own >= worth
	p.high = over > -slack || scarce
	p.ours = over > 0 || p.limit > 0 && own >= p.limit/8
	p.last = scarce && left < headroom(p.limit)/2
	p.dire = over > w.allowance() || p.last
	return p
}

// sweep has the heap collected and its free memory returned, and tells of what remains and
// should not.
func (w *watcher) sweep(now time.Time) heapState {
	charged, before := w.onHeap(), w.heap().size
	w.collect()
	w.swept = w.now()
	w.took, w.swollen = w.swept.Sub(now), false
	h := w.measure()
	w.after, w.beyondAfter = h.size, w.beyond(h)
	// Memory in use now may become garbage once the server is idle. No growth of the heap would
	// show that.
	w.again = w.quiet < quietLooks || before-h.size >= worthwhile
	if charged = max(charged, w.onHeap()); w.uncharged(h, charged) && !now.Before(w.reported) {
		w.reported = now.Add(reportApart)
		w.log.Warn().Int64("bytes", h.live+h.other).Int64("charged", charged).
			Msg("the heap is much larger than what is charged, which is a fault of the server: please report it")
	}
	return h
}

// maySweep reports whether the last sweep is long enough ago.
func (w *watcher) maySweep(now time.Time, apart time.Duration) bool {
	return now.Sub(w.swept) >= max(apart, sweepShare*w.took)
}

// shortApart is how far sweeps are apart while memory is short.
func (w *watcher) shortApart() time.Duration {
	if w.found.dire || w.swollen || !w.pressed.Load() {
		return pressedApart
	}
	return sweepApart
}

// blocked reports whether others are refused because of memory that a sweep may return.
func (w *watcher) blocked(now time.Time, h heapState) bool {
	beyond := w.beyond(h)
	return beyond > w.allowance() && beyond > w.beyondAfter+worthwhile && w.maySweep(now, sweepApart)
}

// suspicious reports whether more than the account takes for granted was in use when the heap
// was last collected, and nobody has charged it. A sweep finds out whether it still is.
func (w *watcher) suspicious(now time.Time, h heapState) bool {
	return w.uncharged(h, w.onHeap()) && !now.Before(w.reported) && w.maySweep(now, sayApart)
}

// uncharged reports whether the heap is larger than twice what is charged, and what the server
// needs itself.
func (w *watcher) uncharged(h heapState, charged int64) bool {
	return h.live+h.other > 2*charged+2*plain+w.base
}

// idle reports whether the server has had nothing to do for a while and a sweep is worth it. The
// runtime would keep that memory until it next collects the heap, which may be in minutes.
func (w *watcher) idle(now time.Time, h heapState) bool {
	if spent := now.Sub(w.second); spent >= idleApart-lookApart {
		if w.quiet++; h.allocated-w.allocated > int64(spent.Seconds()*quietRate) {
			w.quiet = 0
		}
		w.second, w.allocated = now, h.allocated
	}
	return w.quiet >= quietLooks && (w.again || h.size > w.after+max(worthwhile, w.after/8)) && w.maySweep(now, quietApart)
}

// press has large bodies refused while memory is short, and ends the largest holder where
// that is not enough.
func (w *watcher) press(now time.Time) {
	p, pressed := w.found, w.pressed.Load()
	switch {
	case p.high && !pressed:
		w.pressed.Store(true)
		w.since = now
		if w.unsaid = now.Sub(w.said) < sayApart; !w.unsaid {
			w.said = now
			w.figures(w.log.Warn()).Msg("memory is short, large requests are refused")
		}
	case !p.high && pressed:
		w.pressed.Store(false)
		if !w.unsaid {
			w.figures(w.log.Info()).Msg("memory is no longer short")
		}
	case p.high && p.ours && !w.swollen && (p.dire || now.Sub(w.since) >= patience):
		w.end(now)
	}
}

// end ends the largest holder. Those that show next to nothing are ended if the kernel is
// about to end the whole server instead, and never because of figures that nobody can explain.
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
	w.figures(w.log.Warn().Str("holder", h.String()).Int64("held", held)).Msg("holder ended, as memory is short")
}

// figures adds what the last look has found.
func (w *watcher) figures(e *zerolog.Event) *zerolog.Event {
	p := w.found
	e.Int64("bytes", p.real).Int64("charged", w.Total()+w.Used(Cache)-w.Used(Released)).Int64("limit", p.most)
	if p.limit > 0 {
		e.Int64("group_bytes", p.used).Int64("group_limit", p.limit)
	}
	return e
}

// limitGo has the limit of the Go runtime follow what is charged, so that garbage does not
// double what the server has. The limit stays so far above what is in use that collections do
// not follow each other. It rises at once and falls after a while, as each change stops all
// goroutines for a moment.
func (w *watcher) limitGo(now time.Time, h heapState) {
	if !w.limitHeap {
		return
	}
	if busy := h.working - w.busy; busy > 0 { // there was a collection
		w.costly = h.collecting-w.collecting > collectShare*busy
		w.collecting, w.busy = h.collecting, h.working
	}
	room := h.live / 2
	if w.costly {
		room = h.live // as without a limit
	}
	target := max(w.onHeap()+w.allowance(), h.other+h.live+room)
	switch {
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
