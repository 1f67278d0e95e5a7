package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/panics"
)

// now is a clock that only goes forward, in ns.
func now() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()

// mostTexts is how many different errors are told of.
const mostTexts = 5

// retryAfter is how long a caller waits after its connection was lost: a server that is gone is not asked as fast as it refuses.
const retryAfter = 10 * time.Millisecond

// Limits of callers where the rate is given: there are as many as requests are under way.
const (
	firstCallers = 8
	rateCallers  = 1000
)

// lateBy is how late a request may be sent before another caller is added.
const lateBy = time.Millisecond

// tally is what came of the requests that were measured.
type tally struct {
	requests, responses, errors uint64
	latency, first              histogram
	texts                       []string // of the first errors that differ
	perSecond                   []uint64 // requests that ended in each second
}

func (t *tally) merge(other *tally) {
	t.requests += other.requests
	t.responses += other.responses
	t.errors += other.errors
	t.latency.merge(&other.latency)
	t.first.merge(&other.first)
	for i, n := range other.perSecond {
		for len(t.perSecond) <= i {
			t.perSecond = append(t.perSecond, 0)
		}
		t.perSecond[i] += n
	}
	for _, text := range other.texts {
		t.note(text)
	}
}

func (t *tally) note(text string) {
	if len(t.texts) < mostTexts && !slices.Contains(t.texts, text) {
		t.texts = append(t.texts, text)
	}
}

// load is the measurement of one level.
type load struct {
	level    level
	target   target
	samples  int
	sequence int // requests of each sequence; 0: the model has none

	start int64        // of the warm-up, ns of now
	begin int64        // start of the measurement
	end   atomic.Int64 // of it; earlier than planned if the user breaks off
	stop  atomic.Bool
	turn  atomic.Int64 // of the next request, where a rate is given
	ids   atomic.Uint64

	mu      sync.Mutex
	workers []*worker
	failed  error // a caller could not be made, or panicked
	running sync.WaitGroup
}

// worker is one caller at work.
type worker struct {
	load   *load
	caller caller
	number int

	sequence uint64
	sent     int // requests of the sequence

	mu    sync.Mutex
	tally tally
}

// run measures, and returns the result and its duration in seconds.
// Begun is called when the warm-up is over, live each second.
func (l *load) run(ctx context.Context, warmUp, duration time.Duration, begun func(), live func(*load)) (*tally, float64, error) {
	l.start = now()
	l.begin = l.start + int64(warmUp)
	l.end.Store(l.begin + int64(duration))
	callers := l.level.Concurrency
	if l.level.Rate > 0 {
		callers = firstCallers
	}
	for range callers {
		l.add(ctx)
	}
	warm := time.NewTimer(warmUp)
	defer warm.Stop()
	over := time.NewTimer(warmUp + duration)
	defer over.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-warm.C:
			begun()
		case <-tick.C:
			live(l)
		case <-over.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	l.end.Store(min(l.end.Load(), now()))
	l.stop.Store(true)
	l.running.Wait()
	if l.failed != nil {
		return nil, 0, l.failed
	}
	return l.sum(), float64(l.end.Load()-l.begin) / 1e9, context.Cause(ctx)
}

// sum adds up the results of all callers so far.
func (l *load) sum() *tally {
	l.mu.Lock()
	workers := slices.Clone(l.workers)
	l.mu.Unlock()
	all := &tally{}
	for _, w := range workers {
		w.mu.Lock()
		all.merge(&w.tally)
		w.mu.Unlock()
	}
	return all
}

// add starts one more caller.
func (l *load) add(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.level.Rate > 0 && len(l.workers) >= rateCallers {
		return
	}
	c, err := l.target.newCaller(len(l.workers))
	if err != nil {
		l.failed = err
		return
	}
	w := &worker{load: l, caller: c, number: len(l.workers)}
	l.workers = append(l.workers, w)
	l.running.Go(panics.Guard(zerolog.Nop(), panics.Request, func() {
		defer c.close()
		w.work(ctx)
	}, func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = err
	}))
}

// work sends requests until the measurement is over, and then ends the sequence that it has begun.
func (w *worker) work(ctx context.Context) {
	l := w.load
	for turn := int64(0); !l.stop.Load() && ctx.Err() == nil; turn++ {
		due := now()
		if l.level.Rate > 0 {
			turn = l.turn.Add(1) - 1
			due = l.startOf(turn)
			if wait := due - now(); wait > 0 {
				if due > l.end.Load() || !w.until(ctx, due) {
					break
				}
			} else if -wait > int64(lateBy) && due < l.end.Load() {
				l.add(ctx)
			}
		}
		r := w.next(int((turn + int64(w.number)) % int64(l.samples)))
		a, err := w.caller.call(ctx, r)
		if ctx.Err() != nil {
			break
		}
		if ended := now(); ended >= l.begin && ended <= l.end.Load() {
			w.record(due, ended, a, err)
		}
		var f *failure
		if errors.As(err, &f) && f.broken {
			w.sequence = 0 // the server has perhaps lost it
			if !w.sleep(ctx, retryAfter) {
				break
			}
		}
	}
	if w.sequence != 0 && ctx.Err() == nil {
		_, _ = w.caller.call(ctx, request{sequence: w.sequence, end: true}) // not measured
	}
}

// startOf is when a request is due that is sent whatever becomes of others.
func (l *load) startOf(turn int64) int64 {
	return l.start + int64(float64(turn)*1e9/l.level.Rate)
}

// timerSlack is how much too late a timer of the Go runtime may fire, which waits in whole milliseconds.
const timerSlack = int64(1200 * time.Microsecond)

// until waits for a moment; false if ctx ends first. The last bit is slept in the kernel, to the microsecond.
func (w *worker) until(ctx context.Context, due int64) bool {
	if wait := due - now() - timerSlack; wait > 0 && !w.sleep(ctx, time.Duration(wait)) {
		return false
	}
	if wait := due - now(); wait > 0 {
		_ = unix.Nanosleep(&unix.Timespec{Sec: wait / 1e9, Nsec: wait % 1e9}, nil) // a signal that shortens it does no harm
	}
	return true
}

// sleep waits; false if ctx ends first.
func (w *worker) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// next says what to send.
func (w *worker) next(sample int) request {
	r := request{sample: sample}
	if w.load.sequence == 0 {
		return r
	}
	if w.sequence == 0 {
		w.sequence, w.sent = w.load.ids.Add(1), 0
	}
	w.sent++
	r.sequence, r.start, r.end = w.sequence, w.sent == 1, w.sent >= w.load.sequence
	if r.end {
		w.sequence = 0
	}
	return r
}

// record notes a request that has ended while it was measured.
func (w *worker) record(due, ended int64, a answer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.tally
	if err != nil {
		t.errors++
		t.note(err.Error())
		return
	}
	t.requests++
	t.responses += uint64(a.responses)
	t.latency.add(time.Duration(ended - due))
	if a.first != 0 {
		t.first.add(time.Duration(a.first - due))
	}
	second := int((ended - w.load.begin) / 1e9)
	for len(t.perSecond) <= second {
		t.perSecond = append(t.perSecond, 0)
	}
	t.perSecond[second]++
}
