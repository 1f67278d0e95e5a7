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

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// now is a monotonic clock in ns.
func now() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()

// mostTexts is how many different errors are shown.
const mostTexts = 5

// retryAfter is how long a caller waits after losing its connection, so that it does not flood a
// server that is gone.
const retryAfter = 10 * time.Millisecond

// Limits on callers at a given rate, which needs as many callers as requests in flight.
const (
	firstCallers = 8
	rateCallers  = 1000
)

// lateBy is how late a request may be sent before another caller is added.
const lateBy = time.Millisecond

// results counts the results of the measured requests.
type results struct {
	requests, responses, errors uint64
	latency, first              histogram
	texts                       []string // of the first distinct errors; bound: mostTexts
	perSecond                   []uint64 // completed requests per second; bound: --duration
}

func (t *results) merge(other *results) {
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

// note keeps an error's text, up to infer.MaxEcho bytes, because each caller keeps several.
func (t *results) note(text string) {
	text = infer.Cut(text, infer.MaxEcho)
	if len(t.texts) < mostTexts && !slices.Contains(t.texts, text) {
		t.texts = append(t.texts, text)
	}
}

// load is the measurement of one level.
type load struct {
	level    level
	target   target
	samples  int
	sequence int // requests per sequence; 0: the model has none

	start int64        // of the warm-up, in ns of now
	begin int64        // start of the measurement
	end   atomic.Int64 // of the measurement; earlier than planned if the user interrupts it
	stop  atomic.Bool
	turn  atomic.Int64 // of the next request, at a given rate
	ids   atomic.Uint64

	mu      sync.Mutex
	workers []*worker // bound: mostCallers
	failed  error     // a caller could not be created, or panicked
	running sync.WaitGroup
}

// worker runs one caller.
type worker struct {
	load   *load
	caller caller
	number int

	sequence uint64
	sent     int // requests of the current sequence

	mu      sync.Mutex
	results results
}

// run measures, and returns the result and its duration in seconds. It calls begun after the
// warm-up, and live each second.
func (l *load) run(ctx context.Context, warmUp, duration time.Duration, begun func(), live func(*load)) (*results, float64, error) {
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
func (l *load) sum() *results {
	l.mu.Lock()
	workers := slices.Clone(l.workers)
	l.mu.Unlock()
	all := &results{}
	for _, w := range workers {
		w.mu.Lock()
		all.merge(&w.results)
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
			w.sequence = 0 // the server may have lost it
			if !w.sleep(ctx, retryAfter) {
				break
			}
		}
	}
	if w.sequence != 0 && ctx.Err() == nil {
		_, _ = w.caller.call(ctx, request{sequence: w.sequence, end: true}) // not measured
	}
}

// startOf returns the due time of a request, which does not depend on other requests.
func (l *load) startOf(turn int64) int64 {
	return l.start + int64(float64(turn)*1e9/l.level.Rate)
}

// timerSlack is how late a timer of the Go runtime may fire, because it waits in whole
// milliseconds.
const timerSlack = int64(1200 * time.Microsecond)

// until waits for a time, and returns false if ctx ends first. For the last part it sleeps in the
// kernel, to the microsecond.
func (w *worker) until(ctx context.Context, due int64) bool {
	if wait := due - now() - timerSlack; wait > 0 && !w.sleep(ctx, time.Duration(wait)) {
		return false
	}
	if wait := due - now(); wait > 0 {
		_ = unix.Nanosleep(&unix.Timespec{Sec: wait / 1e9, Nsec: wait % 1e9}, nil) // an early return because of a signal is harmless
	}
	return true
}

// sleep waits, and returns false if ctx ends first.
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

// next returns the next request.
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

// record records a request that has ended during the measurement.
func (w *worker) record(due, ended int64, a outcome, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.results
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
