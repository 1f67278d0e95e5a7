package boundary

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Limit bounds how long another process may take. It counts in ticks, and a tick during which
// this process was stopped, suspended or throttled counts only as long as it was meant to last.
// After such a tick at least one more passes before the limit is over: what the other process
// has said meanwhile is read first. A limit of 0 or less is never over.
type Limit struct {
	// C is closed when the limit is over.
	C    <-chan struct{}
	over func()
	step time.Duration // of a tick

	mu      sync.Mutex // a leaf: over is called without it
	timer   *time.Timer
	left    time.Duration
	tick    time.Duration // that is under way
	began   time.Time     // of the tick
	waited  bool          // one tick more, after a pause
	stopped bool
}

// A limit has about ticksOfLimit ticks, within the bounds of one.
const (
	ticksOfLimit = 8
	shortestTick = 50 * time.Millisecond
	longestTick  = time.Second
)

// NewLimit begins a limit, whose end is seen at C. The caller stops it.
func NewLimit(d time.Duration) *Limit {
	c := make(chan struct{})
	l := begin(d, func() { close(c) })
	l.C = c
	return l
}

// AfterLimit begins a limit that calls f when it is over, as AfterFunc does.
func AfterLimit(log zerolog.Logger, where Where, d time.Duration, f func(), failed func(error)) *Limit {
	return begin(d, Guard(log, where, f, failed))
}

// WithLimit returns a context that ends with ctx, and with cause when a limit is over. It has
// no deadline.
func WithLimit(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := begin(d, func() { cancel(cause) })
	return ctx, func() {
		l.Stop()
		cancel(nil)
	}
}

func begin(d time.Duration, over func()) *Limit {
	l := &Limit{over: over, left: d, step: min(max(d/ticksOfLimit, shortestTick), longestTick)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(math.MaxInt64, l.look)
	if d > 0 {
		l.tickLocked()
	}
	return l
}

// Stop ends a limit that is not over. It may be called again.
func (l *Limit) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}

func (l *Limit) tickLocked() {
	l.tick, l.began = min(l.left, l.step), time.Now()
	l.timer.Reset(l.tick)
}

// look is what the timer calls at the end of each tick.
func (l *Limit) look() {
	if l.ended() {
		l.over()
	}
}

func (l *Limit) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.countLocked(time.Since(l.began))
	if l.stopped = l.left <= 0; !l.stopped {
		l.tickLocked()
	}
	return l.stopped
}

// countLocked takes account of a tick that has taken so long.
func (l *Limit) countLocked(took time.Duration) {
	if took <= l.tick+l.step {
		l.left -= took
		return
	}
	l.left -= l.tick
	if l.left <= 0 && !l.waited {
		l.left, l.waited = l.step, true
	}
}
