package panics

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Limit limits the time that another process may take. It counts in ticks. A tick during which this
// process was stopped, suspended or throttled counts only its planned length, and at least one more
// tick follows, so that this process reads the other's response first. A limit of 0 or less never
// ends.
type Limit struct {
	// C is closed when the limit ends.
	C    <-chan struct{}
	over func()
	step time.Duration // length of a tick

	mu      sync.Mutex // a leaf: over is called without it
	timer   *time.Timer
	left    time.Duration
	tick    time.Duration // length of the current tick
	began   time.Time     // of the current tick
	waited  bool          // an extra tick was added after a pause
	stopped bool
}

// A limit has about ticksOfLimit ticks, each between the shortest and the longest.
const (
	ticksOfLimit = 8
	shortestTick = 50 * time.Millisecond
	longestTick  = time.Second
)

// NewLimit starts a limit that closes C when it ends. The caller stops it.
func NewLimit(d time.Duration) *Limit {
	c := make(chan struct{})
	l := begin(d, func() { close(c) })
	l.C = c
	return l
}

// AfterLimit starts a limit that calls f when it ends, behind a boundary as in AfterFunc.
func AfterLimit(log zerolog.Logger, where Where, d time.Duration, f func(), failed func(error)) *Limit {
	return begin(d, Guard(log, where, f, failed))
}

// WithLimit returns a context that ends with ctx, or with cause when the limit ends. It has no
// deadline, but Left.
func WithLimit(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := begin(d, func() { cancel(cause) })
	return context.WithValue(ctx, limitKey{}, l), func() {
		l.Stop()
		cancel(nil)
	}
}

type limitKey struct{}

// Left returns the time that is left of the innermost limit of ctx, or 0 without a limit.
func Left(ctx context.Context) time.Duration {
	l, _ := ctx.Value(limitKey{}).(*Limit)
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.left-min(time.Since(l.began), l.tick), 0)
}

func begin(d time.Duration, over func()) *Limit {
	l := &Limit{over: over, left: d, step: min(max(d/ticksOfLimit, shortestTick), longestTick)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = AfterFunc(zerolog.Nop(), Life, math.MaxInt64, func() {
		if l.ended() {
			l.over()
		}
	}, nil)
	if d > 0 {
		l.tickLocked()
	}
	return l
}

// Stop keeps a limit from ending. It may be called several times.
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

// ended counts the tick that has passed, and reports whether the limit ends with it.
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

// countLocked subtracts a tick of the given duration.
func (l *Limit) countLocked(took time.Duration) {
	if took <= l.tick+l.step {
		l.left -= took
		return
	}
	l.left -= l.tick
	if l.left < l.step && !l.waited {
		l.left, l.waited = l.step, true
	}
}
