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
	// releasedMin is the minimum freed heap memory that is tracked: the runtime reuses less soon
	// anyway.
	releasedMin = 256 << 10
	// kickApart is the interval between checks of the memory that owners request, lookApart between
	// those after collections and while memory is short, and idleApart between all others.
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

// afterCollection is garbage as soon as it is created, so that its finalizer runs after the next
// collection. It contains a pointer, because objects without one share their memory.
type afterCollection struct{ *keeper }

// tell reports a collection of the heap, and registers itself for the next one. A growing heap is
// collected each time it has doubled, so a sleeping watcher wakes in time.
func (c *afterCollection) tell() {
	if c.on.Load() {
		send(c.collected)
		runtime.SetFinalizer(c, (*afterCollection).tell)
	}
}

// Watch configures the additional duties of the goroutine that keeps an account.
type Watch struct {
	// LimitHeap makes the memory limit of the Go runtime follow the account.
	LimitHeap bool
	Log       zerolog.Logger
}

// Keep watches the memory of the process until ctx ends. Meanwhile large memory that is freed on
// the heap stays on the account until the heap has shrunk or has reused it, and pressure is noticed
// and handled. When Keep returns, nothing is Released and memory is not short.
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
	// From now on Give moves large amounts to Released. Only this goroutine gives that back, so
	// Released otherwise only grows.
	k := &a.keeper
	k.on.Store(true)
	(&afterCollection{k}).tell()
	before := debug.SetMemoryLimit(-1)
	defer func() {
		k.on.Store(false)
		a.pressed.Store(false)
		scarce.Store(false)
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
