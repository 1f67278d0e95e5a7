package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// releasedMin is the least that is noted when it is freed on the heap: what
	// the runtime uses again soon anyway is not worth it.
	releasedMin = 256 << 10
	// lookApart is how far looks at the heap are apart, and sweepApart the
	// collections that return memory to the system.
	lookApart  = 20 * time.Millisecond
	sweepApart = time.Second
	// quiet is how long after the last large release a heap that is much larger
	// than what is charged is swept, and quietApart is how far such sweeps are
	// apart.
	quiet      = time.Second
	quietApart = 5 * time.Second
	// plain is what the heap may have beyond what is charged: the server itself,
	// and what waits to be collected.
	plain = 48 << 20
)

// keeper tells how much of the Go heap is neither charged nor returned to the
// system.
type keeper struct {
	on   atomic.Bool
	kick chan struct{} // sent to without blocking, by owners that have released much; never closed
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// HeapLimit is the limit for the Go runtime (debug.SetMemoryLimit) that goes with
// the account: the heap may be all that is charged, and what the server needs.
func (a *Account) HeapLimit() int64 { return a.limit + a.allowance() + a.own[Cache] }

// allowance is what the heap may have beyond what is charged before that counts
// as Released.
func (a *Account) allowance() int64 { return plain + a.limit/16 }

// Keep watches the Go heap until ctx ends. While it runs, large memory that is
// freed on the heap stays on the account until the heap has shrunk or has reused
// it; at its end nothing is Released any more.
func (a *Account) Keep(ctx context.Context) {
	// From now on Give makes Released of what is large. This goroutine alone gives that
	// back, so what it reads of Released only grows meanwhile.
	k := &a.keeper
	k.on.Store(true)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var swept time.Time // when memory was returned last
	noted := time.Time{}
	for {
		select {
		case <-k.kick:
			noted = time.Now()
		case <-timer.C:
		case <-ctx.Done():
			k.on.Store(false)
			a.give(Released, a.Used(Released))
			return
		}
		beyond := a.look()
		since := time.Since(swept)
		much := beyond > a.allowance()
		idle := beyond > 2*plain && time.Since(noted) >= quiet && since >= quietApart
		if much && since >= sweepApart || idle {
			debug.FreeOSMemory()
			swept = time.Now()
			beyond = a.look()
		}
		switch {
		case beyond > a.allowance():
			timer.Reset(sweepApart)
		case beyond > 2*plain:
			timer.Reset(quietApart)
		default:
			timer.Stop()
		}
		select {
		case <-time.After(lookApart):
		case <-ctx.Done():
		}
	}
}

// look measures the heap, brings Released up to date and returns the bytes that
// the heap has beyond what is charged.
func (a *Account) look() int64 {
	noted, charged := a.Used(Released), int64(0)
	for k := range a.kinds {
		if shares[k].heap {
			charged += a.kinds[k].used.Load()
		}
	}
	beyond := max(heap()-charged, 0)
	// What is released from here on is noted beside it.
	if released := max(beyond-a.allowance(), 0); released < noted {
		a.give(Released, noted-released)
	} else {
		a.Must(Released, released-noted)
	}
	return beyond
}

// heap returns the bytes that the Go runtime has of the system.
func heap() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()) - int64(samples[1].Value.Uint64())
}
