package budget

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// releasedMin is the least that is noted when it is freed on the heap: what
	// the runtime uses again soon anyway is not worth it.
	releasedMin = 256 << 10
	// kickApart is how far looks at the memory are apart that owners ask for, lookApart those
	// after collections and while memory is short, and idleApart all others.
	kickApart = 20 * time.Millisecond
	lookApart = 100 * time.Millisecond
	idleApart = time.Second
)

// keeper is the state that Keep shares with the goroutines that charge.
type keeper struct {
	on        atomic.Bool
	kick      chan struct{} // sent to without blocking, by owners that have released much; never closed
	collected chan struct{} // sent to without blocking, after each collection of the heap; never closed
	ended     atomic.Int64  // holders that were ended
}

func (k *keeper) wake() { send(k.kick) }

func send(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// afterCollection is garbage from the moment on when it is made, so that its finalizer runs
// after the next collection. It holds a pointer, as objects without one share their memory.
type afterCollection struct{ *keeper }

// tell says that the heap was collected, and makes itself known again for the next time. A
// heap that grows is collected each time it has doubled, so a watcher that sleeps is woken in
// time.
func (c *afterCollection) tell() {
	if c.on.Load() {
		send(c.collected)
		runtime.SetFinalizer(c, (*afterCollection).tell)
	}
}

// Watch configures the additional duties of the goroutine that keeps an account.
type Watch struct {
	// LimitHeap has the memory limit of the Go runtime follow the account.
	LimitHeap bool
	Log       zerolog.Logger
}

// Keep watches the memory of the process until ctx ends. While it runs, large memory that is
// freed on the heap stays on the account until the heap has shrunk or has reused it, and
// pressure is noticed and dealt with. At its end nothing is Released and memory is not short.
func (a *Account) Keep(ctx context.Context, c Watch) {
	limited := slices.DeleteFunc(groups(os.ReadFile), func(g group) bool { return g.limit() == math.MaxInt64 })
	w := newWatcher(a, c, system{
		heap:  readHeap(),
		group: func() (used, limit int64) { return tightest(limited, headroom) },
		collect: func() {
			runtime.GC() // objects in a sync.Pool survive the first collection
			debug.FreeOSMemory()
		},
		setGo: func(limit int64) { debug.SetMemoryLimit(limit) },
		now:   time.Now,
	})
	// From now on Give moves large amounts to Released. This goroutine alone gives that
	// back, so Released only grows meanwhile.
	k := &a.keeper
	k.on.Store(true)
	(&afterCollection{k}).tell()
	before := debug.SetMemoryLimit(-1)
	defer func() {
		k.on.Store(false)
		a.pressed.Store(false)
		a.give(Released, a.Used(Released))
		if c.LimitHeap {
			debug.SetMemoryLimit(before)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	looked := time.Time{}
	for {
		kicked := false
		select {
		case <-k.kick:
			kicked = true
		case <-k.collected:
			if wait := lookApart - time.Since(looked); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(w.look())
		looked = time.Now()
		if kicked {
			select {
			case <-time.After(kickApart):
			case <-ctx.Done():
			}
		}
	}
}
