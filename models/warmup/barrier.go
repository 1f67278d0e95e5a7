package warmup

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/panics"
)

// Barrier stands between the instances of a version and its scheduler. A new instance waits in it
// until it is warm and admitted together with those that came with it. An instance that was lost
// and comes back is warmed up again; it passes even if that fails.
//
//	Available ─▶ warm up ─▶ wait for Admit ─▶ scheduler
//	Available again ─▶ warm up ─────────────▶ scheduler
type Barrier struct {
	next backend.Events
	// warm warms an instance up; nil if there is nothing to do.
	warm func(ctx context.Context, in backend.Instance, first bool) error
	log  zerolog.Logger

	ctx     context.Context // of the warm-ups
	end     context.CancelFunc
	running panics.WaitGroup

	mu       sync.Mutex
	arrivals map[backend.Instance]*arrival // by the innermost instance
	// failures receives the first error of an instance that is not admitted; it has room for one.
	failures chan error
}

// arrival is an instance that has come to a barrier.
type arrival struct {
	in backend.Instance
	// turn is held while the scheduler is told of the instance, so that the calls are ordered. It
	// is taken before the barrier's mu.
	turn sync.Mutex
	// first is closed when the first warm-up has ended.
	first chan struct{}

	// Guarded by the barrier's mu.
	life     int  // number of arrivals and losses
	tried    bool // the first warm-up has ended
	ready    bool // it is available and warm
	hopeless bool // argument of Lost
	admitted bool
	retired  bool // it no longer passes
	stop     context.CancelFunc
}

// NewBarrier makes a barrier in front of next. warm warms an instance up; nil if there is nothing
// to do.
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
	// The instance runs on meanwhile: it may be lost, and its owner must notice.
	g.running.Go(g.log, panics.Models, func() { g.warmed(a, life, g.warm(ctx, in, first)) }, func(err error) { g.warmed(a, life, err) })
}

// warmed lets an instance pass if it is still there and may pass.
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
		g.log.Error().Str("instance", a.in.Name()).Msgf("the instance is used although its warm-up failed: %v", err)
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

// Wait waits until the instances that are not admitted are warm. It returns the first error.
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

// Admit lets all waiting instances pass. Instances lost meanwhile pass when they come
// back.
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

// Retire stops an instance from passing again, and returns it as the scheduler knows it; nil if the
// scheduler does not.
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

// Forget drops the record of an ended instance.
func (g *Barrier) Forget(in backend.Instance) {
	g.mu.Lock()
	delete(g.arrivals, backend.Innermost(in))
	g.mu.Unlock()
}

// Refuse stops all waiting instances from passing, and returns them. They stay known until Forget:
// an instance that restarts while it is being retired does not count as waiting.
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
	case <-g.failures: //nolint:errcheck // it belongs to a refused instance
	default:
	}
	return list
}

// Known counts the instances that have come and are not forgotten.
func (g *Barrier) Known() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.arrivals)
}

// Settle waits until no warm-up is running.
func (g *Barrier) Settle() { g.running.Wait() }

// Cancel cancels the running warm-ups without waiting.
func (g *Barrier) Cancel() { g.end() }

// Close cancels the running warm-ups and waits for them.
func (g *Barrier) Close() {
	g.Cancel()
	g.Settle()
}
