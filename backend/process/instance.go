package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/rs/zerolog"
)

// Instance is one instance of a model: a sequence of stub processes, one at a
// time.
type Instance struct {
	model *Model
	name  string
	gpu   int32 // for Report.GPU
	// placed is what the config said of it when it was made, and json the whole
	// config as its stubs are told it.
	placed placement.Placement
	json   []byte
	cores  []int // that it may run on; empty: all
	log    zerolog.Logger

	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned; set, like cancel, before it begins

	// primed is a life that has completed the model's config and becomes the first
	// one; used by one goroutine at a time: AutoComplete, then Run.
	primed *life
	// current is the life that takes batches, for Await; nil while there is none.
	current atomic.Pointer[life]
	// doomed is true once no stub is to live on, set before current is looked at.
	doomed atomic.Bool
	// asks is true if the model has is_ready.
	asks  atomic.Bool
	await awaitState
	// noted is what operators are shown; the goroutine of Run alone stores it.
	noted atomic.Pointer[record]
	// served is true once the present life has answered a batch, warm-ups aside.
	served atomic.Bool

	// submit is held while a batch is numbered, encoded and published. It is taken
	// before mu and the channel's send lock.
	submit sync.Mutex

	mu       sync.Mutex
	state    State
	life     *life // set in Ready and Busy
	hopeless bool  // no new life is to be expected soon
}

var (
	_ backend.Instance  = (*Instance)(nil)
	_ backend.Awaiter   = (*Instance)(nil)
	_ backend.Pipeliner = (*Instance)(nil)
)

// Name implements backend.Instance.
func (in *Instance) Name() string { return in.name }

// Run keeps one stub alive until ctx ends; then the stub is told to finalize.
// started is called once, with the outcome of the first start. After a first
// start that failed Run returns; later losses are healed. When Run returns the
// stub has been reaped and its memory is unmapped, except for what responses
// that are still being written hold.
func (in *Instance) Run(ctx context.Context, started func(error)) {
	in.model.supervisor.instances.Add(1)
	defer in.model.supervisor.instances.Add(-1)
	in.model.supervisor.enlist(in, true)
	defer in.model.supervisor.enlist(in, false)
	in.note(PhaseStarting, nil)
	healed := false
	var back backoff
	for {
		began := time.Now()
		in.served.Store(false)
		err := in.runOnce(ctx, func() {
			in.setHopeless(false)
			in.noteUp(healed)
			if healed {
				in.model.supervisor.metrics.StubRestarted(in.model.env.Name)
				return
			}
			healed = true
			started(nil)
		})
		if !healed {
			in.stop(false)
			started(err)
			return
		}
		if ctx.Err() != nil || errors.Is(err, errStopped) {
			in.stop(true)
			return
		}
		why := loss{cause: causeOf(err), started: !errors.Is(err, errNeverReady), served: in.served.Load()}
		in.model.supervisor.metrics.StubLost(in.model.env.Name, string(why.cause))
		wait, hopeless := back.next(time.Since(began), why)
		in.setHopeless(hopeless)
		in.noteLoss(err, why.cause, wait, hopeless)
		in.log.Warn().Err(err).Str("cause", string(why.cause)).Stringer("wait", wait.Round(time.Millisecond)).Msg("process lost, restarting")
		if tail := stderrOf(err); tail != "" {
			in.log.Warn().Msg("last lines of the lost process:\n" + tail)
		}
		select {
		case <-ctx.Done():
			in.stop(true)
			return
		case <-time.After(wait):
		}
		in.move(Starting, nil)
		if !hopeless { // else it stays dead until it is up
			in.note(PhaseRestarting, nil)
		}
	}
}

// stop ends the instance for good. If it ever worked, a scheduler that still waits for it
// is told that there is nothing to wait for.
func (in *Instance) stop(worked bool) {
	in.endState()
	if worked {
		in.lost(true)
	}
}

func (in *Instance) endState() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state != Stopped {
		in.moveLocked(Stopped)
	}
}

// setHopeless tells the scheduler, once for each change, whether waiting for
// this instance makes sense.
func (in *Instance) setHopeless(yes bool) {
	in.mu.Lock()
	changed := in.hopeless != yes
	in.hopeless = yes
	in.mu.Unlock()
	if changed && yes {
		in.log.Error().Msg("process is lost again and again: requests are refused until it starts")
		in.lost(true)
	}
}

// available tells the scheduler of an instance that takes batches, which a passive
// one does not.
func (in *Instance) available() {
	if !in.placed.Group.GetPassive() {
		in.model.events.Available(in)
	}
}

func (in *Instance) lost(hopeless bool) {
	if !in.placed.Group.GetPassive() {
		in.model.events.Lost(in, hopeless)
	}
}

// backoff says how long to wait before a new life: not at all after a life that has
// answered something, and longer and longer while lives end without. Losses that do
// not speak against the model make pauses too, but are not counted for giving up.
type backoff struct {
	pauses int // in a row, each after less than a healthy minute
	losses int // of these, counted for giving up
	starts int // in a row that did not reach ready, counted for giving up
	// lived are the last hopelessLosses lives that count, with the pauses after them
	// and what came between, the latest last.
	lived [hopelessLosses]time.Duration
}

// Limits of restarting.
const (
	healthyAfter    = time.Minute
	firstPause      = 10 * time.Millisecond
	longestPause    = 5 * time.Second  // of a stub that starts and is lost
	longestStart    = 30 * time.Second // after a life that did not start
	hopelessStarts  = 3
	hopelessLosses  = 5           // in a row within losingSpan
	losingSpan      = time.Minute // of lives and pauses
	pauseJitterPart = 5           // a fifth, either way
)

// next takes account of a loss after lived and returns the pause before the
// next start, and whether there is little hope: stubs do not start, or do and are
// lost again and again before they have answered anything.
func (b *backoff) next(lived time.Duration, l loss) (wait time.Duration, hopeless bool) {
	if l.served {
		*b = backoff{}
		return 0, false
	}
	if l.cause == TakenAway { // as if it had not been: the region is copied from now on
		return 0, false
	}
	if lived >= healthyAfter && l.started {
		*b = backoff{}
	}
	limit := longestPause
	if !l.started {
		limit = longestStart
	}
	wait = min(firstPause<<min(b.pauses, 20), limit)
	b.pauses++
	jitter := int64(wait) / pauseJitterPart
	wait += time.Duration(rand.Int64N(2*jitter+1) - jitter)
	if !l.cause.counts() {
		b.lived[hopelessLosses-1] += lived + wait
		return wait, false
	}
	b.losses++
	if l.started {
		b.starts = 0
	} else {
		b.starts++
	}
	copy(b.lived[:], b.lived[1:])
	b.lived[hopelessLosses-1] = lived
	var since time.Duration // the first of the last losses
	for _, d := range b.lived[1:] {
		since += d
	}
	b.lived[hopelessLosses-1] += wait
	return wait, b.starts >= hopelessStarts || b.losses >= hopelessLosses && since < losingSpan
}

func stderrOf(err error) string {
	var exit *launch.ExitError
	if !errors.As(err, &exit) {
		return ""
	}
	text := ""
	for i, line := range exit.Stderr {
		if i > 0 {
			text += "\n"
		}
		text += line
	}
	return text
}
