package warmup

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/panics"
)

// Barrier stands between the instances of a version and its scheduler. An instance
// waits in it until it has been warmed up and, when it comes for the first time,
// until it is admitted together with those that came with it. One that was lost
// and comes again is warmed up again; if that fails it passes nevertheless.
//
//	Available ─▶ warm up ─▶ wait for Admit ─▶ scheduler
//	Available again ─▶ warm up ─────────────▶ scheduler
type Barrier struct {
	next backend.Events
	// warm warms an instance up; nil if there is nothing to be done.
	warm func(ctx context.Context, in backend.Instance, first bool) error
	log  zerolog.Logger

	ctx     context.Context // of what warms up
	end     context.CancelFunc
	running panics.WaitGroup

	mu       sync.Mutex
	arrivals map[backend.Instance]*arrival // by the innermost instance
	// failures receives the first error of an instance that is not admitted; it has
	// room for that one.
	failures chan error
}

// arrival is an instance that has come to a barrier.
type arrival struct {
	in backend.Instance
	// turn is held while the scheduler is told, so that it hears of one thing after
	// the other. It is taken before the barrier's mu.
	turn sync.Mutex
	// first is closed when the first warm-up has ended.
	first chan struct{}

	// Guarded by the barrier's mu.
	life     int  // how often it has come or gone
	tried    bool // the first warm-up has ended
	ready    bool // it is available and warm
	hopeless bool // what Lost has said
	admitted bool
	retired  bool // it does not pass any more
	stop     context.CancelFunc
}

// NewBarrier makes a barrier in front of next; warm warms an instance up, nil if there is
// nothing to be done.
func NewBarrier(next backend.Events, warm func(ctx context.Context, in backend.Instance, first bool) error, log zerolog.Logger) *Barrier {
	g := &Barrier{next: next, warm: warm, log: log, arrivals: make(map[backend.Instance]*arrival), failures: make(chan error, 1)}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g
}

// Available implements backend.Events.
func (g *Barrier) Available(in backend.Instance) {
	key := backend.Innermost(in)
	g.mu.Lock()
	a := g.arrivals[key]
	if a == nil {
		a = &arrival{in: in, first: make(chan struct{})}
		g.arrivals[key] = a // bound: the instances of the version
	}
	if a.retired {
		g.mu.Unlock()
		return
	}
	a.life++
	life, first := a.life, !a.tried
	var ctx context.Context
	ctx, a.stop = context.WithCancel(g.ctx)
	g.mu.Unlock()
	if g.warm == nil {
		g.warmed(a, life, nil)
		return
	}
	// The instance goes on meanwhile: it may be lost, and its owner has to see that.
	g.running.Go(g.log, panics.Models, func() { g.warmed(a, life, g.warm(ctx, in, first)) }, func(err error) { g.warmed(a, life, err) })
}

// warmed lets an instance pass that is still there, if it may.
func (g *Barrier) warmed(a *arrival, life int, err error) {
	a.turn.Lock()
	defer a.turn.Unlock()
	g.mu.Lock()
	if !a.tried {
		a.tried = true
		if err != nil && !a.retired {
			select {
			case g.failures <- err:
			default:
			}
		}
		// After the failure is there: a reader that sees this closed looks for it without mu.
		close(a.first)
	} else if err != nil && a.life == life && g.ctx.Err() == nil {
		g.log.Error().Str("instance", a.in.Name()).Msgf("the instance serves although its warm-up failed: %v", err)
	}
	if a.life != life {
		g.mu.Unlock()
		return
	}
	a.stop()
	a.ready = true
	passes := a.admitted && !a.retired
	g.mu.Unlock()
	if passes {
		g.next.Available(a.in)
	}
}

// Lost implements backend.Events.
func (g *Barrier) Lost(in backend.Instance, hopeless bool) {
	g.mu.Lock()
	a := g.arrivals[backend.Innermost(in)]
	g.mu.Unlock()
	if a == nil {
		return
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	g.mu.Lock()
	a.life++
	a.ready, a.hopeless = false, hopeless
	a.stop()
	known := a.admitted
	g.mu.Unlock()
	if known {
		g.next.Lost(a.in, hopeless)
	}
}

// Wait returns when the instances that are not admitted have been warmed up, or
// why one of them could not be.
func (g *Barrier) Wait(ctx context.Context) error {
	for _, a := range g.waiting() {
		select {
		case <-a.first:
		case err := <-g.failures:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case err := <-g.failures:
		return err
	default:
		return nil
	}
}

func (g *Barrier) waiting() []*arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*arrival
	for _, a := range g.arrivals {
		if !a.admitted && !a.retired {
			list = append(list, a) // bound: the instances of the version
		}
	}
	return list
}

// Admit lets all pass that wait. Those that have been lost meanwhile pass when
// they come again.
func (g *Barrier) Admit() {
	for _, a := range g.waiting() {
		a.turn.Lock()
		g.mu.Lock()
		a.admitted = true
		ready, hopeless, retired := a.ready, a.hopeless, a.retired
		g.mu.Unlock()
		switch {
		case retired:
		case ready:
			g.next.Available(a.in)
		default:
			g.next.Lost(a.in, hopeless)
		}
		a.turn.Unlock()
	}
}

// Retire lets an instance pass no more, and returns it as the scheduler knows
// it; nil if that does not.
func (g *Barrier) Retire(in backend.Instance) backend.Instance {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.arrivals[backend.Innermost(in)]
	if a == nil {
		return nil
	}
	a.retired = true
	a.stop()
	if !a.admitted {
		return nil
	}
	return a.in
}

// Forget drops what is known of an instance that has ended.
func (g *Barrier) Forget(in backend.Instance) {
	g.mu.Lock()
	delete(g.arrivals, backend.Innermost(in))
	g.mu.Unlock()
}

// Refuse lets none of those that wait pass, now or later, and returns them. They
// are known until they are forgotten: an instance that restarts while it is being
// retired does not count as waiting.
func (g *Barrier) Refuse() []backend.Instance {
	var list []backend.Instance
	for _, a := range g.waiting() {
		g.mu.Lock()
		a.retired = true
		a.stop()
		list = append(list, a.in) // bound: the instances of the version
		g.mu.Unlock()
	}
	select {
	case <-g.failures: //nolint:errcheck // it is that of one that is refused
	default:
	}
	return list
}

// Known is how many instances have come and are not forgotten.
func (g *Barrier) Known() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.arrivals)
}

// Settle returns when no instance is being warmed up.
func (g *Barrier) Settle() { g.running.Wait() }

// Cancel ends what is being warmed up, without waiting for the end.
func (g *Barrier) Cancel() { g.end() }

// Close cancels what is being warmed up and returns when that has ended.
func (g *Barrier) Close() {
	g.Cancel()
	g.Settle()
}
