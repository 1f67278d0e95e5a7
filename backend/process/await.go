package process

import (
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend/process/bls"
)

// awaitState learns how long answers take, to decide whether waiting for the
// next one actively is worth it. Races between updates lose a sample, no more.
type awaitState struct {
	// average is the moving average (1/8) of ns from handing a batch over until
	// its answer was published: the true wait, without this side's own waking up.
	average atomic.Int64
	// think is the same of how long the stub has nothing to say while its next
	// frame depends on it alone: the time in which it waits for other models is
	// not in it.
	think atomic.Int64
	// skip is how many waits are still to be slept through, because a yield took
	// so long that another process needs the processor; penalty is the next such
	// number, clean counts the spins since.
	skip    atomic.Int32
	penalty atomic.Int32
	clean   atomic.Int32
}

// Limits of spinning, see docs/protocol.md.
const (
	slowYield    = 200 * time.Microsecond
	firstPenalty = 4
	lastPenalty  = 1024
	cleanSpins   = 64
)

// observe takes account of an answer to a batch, and thought of a frame.
func (a *awaitState) observe(wait int64) { learn(&a.average, wait) }
func (a *awaitState) thought(wait int64) { learn(&a.think, wait) }

func learn(average *atomic.Int64, wait int64) {
	// A single long wait, of a stub that is being restarted say, must not keep
	// spinning off for long.
	wait = min(max(wait, 0), int64(time.Millisecond))
	old := average.Load()
	average.Store(old + (wait-old)/8)
}

func (a *awaitState) worthwhile(budget time.Duration) bool {
	if budget <= 0 || a.think.Load() > int64(budget) {
		return false
	}
	if a.skip.Load() > 0 {
		a.skip.Add(-1)
		return false
	}
	return true
}

func (a *awaitState) spun(longest time.Duration) {
	if longest > slowYield {
		next := min(max(a.penalty.Load()*2, firstPenalty), lastPenalty)
		a.penalty.Store(next)
		a.skip.Store(next)
		a.clean.Store(0)
		return
	}
	if a.clean.Add(1) >= cleanSpins {
		a.clean.Store(0)
		a.penalty.Store(a.penalty.Load() / 2)
	}
}

// Await implements backend.Awaiter.
func (in *Instance) Await(done <-chan struct{}) {
	l := in.current.Load()
	budget := in.model.settings.Spin
	if l == nil || !in.await.worthwhile(budget) {
		return
	}
	f := bls.Follower{Of: l.bls}
	longest, err := l.channel.Spin(budget, done, l.handle, f.Look)
	f.Leave()
	in.await.spun(longest)
	if err != nil {
		l.fail(err)
	}
}
