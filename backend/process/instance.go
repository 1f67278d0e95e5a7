package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/placement"
	"github.com/nereid-serving/nereid/backend/process/launch"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Instance is one instance of a model. It runs one stub process after another.
type Instance struct {
	model *Model
	name  string
	gpu   int32 // for Report.GPU
	// placement is the instance's when it was made, and json the whole config for its stubs.
	placement placement.Placement
	json      []byte
	cores     []int // the cores that it may use; empty means all
	log       zerolog.Logger

	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned; set, like cancel, before Run begins

	// primed is a life that has completed the model's config and becomes the first one. One
	// goroutine at a time uses it: AutoComplete, then Run.
	primed *life
	// current is the life that accepts batches, or did until its end began; nil without one.
	current atomic.Pointer[life]
	// doomed is set, before current is read, when no stub may live on. Then doomsday is closed.
	doomed   atomic.Bool
	doomsday chan struct{}
	// asks reports whether the model has is_ready.
	asks  atomic.Bool
	await awaitState
	// noted is the record for operators; only the goroutine of Run stores it.
	noted atomic.Pointer[record]
	// served reports whether the present life has answered a batch, apart from warm-ups.
	served atomic.Bool

	hopeless bool // no new life is expected soon; used by the goroutine of Run alone
}

var _ backend.Instance = (*Instance)(nil)

// Capabilities implements backend.Instance.
func (in *Instance) Capabilities() backend.Capabilities {
	return backend.Capabilities{Awaiter: in, Pipeliner: in, Canceller: in, GroupMember: in}
}

// Name implements backend.Instance.
func (in *Instance) Name() string { return in.name }

// Run keeps one stub alive until ctx ends; then it tells the stub to finalize. It calls started
// once, with the result of the first start. If the first start fails, Run returns; it recovers from
// later losses. When Run returns, the stub has been reaped and its memory is unmapped, except for
// the parts that responses being written still hold.
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
		if !hopeless { // otherwise it stays dead until it is up
			in.note(PhaseRestarting, nil)
		}
	}
}

// stop ends the instance for good. If it ever worked, it tells a scheduler that still waits for it
// to stop waiting.
func (in *Instance) stop(worked bool) {
	if worked {
		in.lost(true)
	}
}

// setHopeless tells the scheduler, once for each change, that waiting for this instance is
// pointless.
func (in *Instance) setHopeless(yes bool) {
	changed := in.hopeless != yes
	in.hopeless = yes
	if changed && yes {
		in.log.Error().Msg("process keeps failing: requests are rejected until it starts")
		in.lost(true)
	}
}

// available tells the scheduler that the instance accepts batches, unless it is passive.
func (in *Instance) available() {
	if !in.placement.Group.GetPassive() {
		in.model.events.Available(in)
	}
}

func (in *Instance) lost(hopeless bool) {
	if !in.placement.Group.GetPassive() {
		in.model.events.Lost(in, hopeless)
	}
}

// backoff chooses the pause before the next life. A life that has answered a batch is restarted at
// once. Pauses grow while lives end without an answer. Losses that are not the model's fault cause
// pauses too, but do not count towards giving up.
type backoff struct {
	pauses int // in a row, each after less than a healthy minute
	losses int // of these, counted towards giving up
	starts int // in a row that did not reach ready, counted towards giving up
	// lived are the durations of the last hopelessLosses counted lives, including the pauses after
	// them and uncounted lives in between, the latest last.
	lived [hopelessLosses]time.Duration
}

// Limits of restarting.
const (
	healthyAfter    = time.Minute
	firstPause      = 10 * time.Millisecond
	longestPause    = 5 * time.Second  // for a stub that starts and is lost
	longestStart    = 30 * time.Second // after a life that did not start
	hopelessStarts  = 3
	hopelessLosses  = 5           // in a row within losingSpan
	losingSpan      = time.Minute // of lives and pauses
	pauseJitterPart = 5           // a fifth, either way
)

// next counts a loss after a life of length lived. It returns the pause before the next start, and
// whether the instance is hopeless: stubs do not start, or they start and are lost repeatedly
// before they have answered anything.
func (b *backoff) next(lived time.Duration, l loss) (wait time.Duration, hopeless bool) {
	if l.served {
		*b = backoff{}
		return 0, false
	}
	if l.cause == TakenAway { // not counted: the region is copied from now on
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
	var since time.Duration // since the first of the last losses
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
	text := "" // bound: the last lines of stderr, which launch bounds
	for i, line := range exit.Stderr {
		if i > 0 {
			text += "\n"
		}
		text += line
	}
	return text
}

// Cause is the reason for the loss of a stub process. The texts are the metric's label.
type Cause string

// The causes of losses.
const (
	// Exited: the process ended by itself, or by a signal from outside.
	Exited Cause = "exit"
	// BrokeProtocol: the process violated the protocol and was killed.
	BrokeProtocol Cause = "protocol"
	// TooLate: the process exceeded a time limit and was killed.
	TooLate Cause = "timeout"
	// OutOfMemory: the kernel killed the process because of a lack of memory, or a process could
	// not get the memory or descriptors that it needs.
	OutOfMemory Cause = "memory"
	// OurFault: the process no longer trusted the data that it received, or the server ended the
	// life because of a fault of its own.
	OurFault Cause = "server"
	// TakenAway: a client truncated its region of shared memory while the process used it.
	TakenAway Cause = "region"
)

// counts reports whether a loss counts against the model, which is given up after too many. A lack
// of memory is temporary; a fault of the server or of a client is not the model's.
func (c Cause) counts() bool { return c != OutOfMemory && c != OurFault && c != TakenAway }

// The exit codes of a stub that lacks memory for its own needs, or that cannot trust the ring any
// more; as in process.py.
const (
	exitNoMemory = 71
	exitConfused = 76
)

// lateError names the action that a stub did not complete in time.
type lateError struct{ text string }

func (e *lateError) Error() string { return e.text }

// Late returns an error of a Program's Start that counts as TooLate.
func Late(text string) error { return &lateError{text} }

// causeOf returns why a life has ended, or could not begin.
func causeOf(err error) Cause {
	var (
		exit     *launch.ExitError
		protocol *ipc.ProtocolError
		late     *lateError
		panicked *panics.Error
		taken    *takenAwayError
	)
	switch {
	case errors.As(err, &panicked):
		return OurFault
	case errors.As(err, &taken):
		return TakenAway
	case errors.As(err, &protocol):
		return BrokeProtocol
	case errors.As(err, &late):
		return TooLate
	case errors.As(err, &exit) && (exit.OutOfMemory || exit.Code == exitNoMemory):
		return OutOfMemory
	case errors.As(err, &exit) && exit.Code == exitConfused:
		return OurFault
	case exit == nil && isShortage(err):
		return OutOfMemory
	}
	return Exited
}

// isShortage reports whether an error is a lack of memory, descriptors or processes.
func isShortage(err error) bool {
	for _, reason := range []error{
		shm.ErrExhausted, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EAGAIN, unix.ENOBUFS, unix.EDQUOT,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// shortage names the resource that the server lacked to start a process, and the remedy. It returns
// "" for other errors.
func shortage(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "No file descriptor is left for the process: raise their limit (ulimit -n, LimitNOFILE=), or load fewer instances."
	case errors.Is(err, unix.EAGAIN):
		return "No further process can be started: raise their limit (ulimit -u, pids.max, TasksMax=), or load fewer instances."
	case errors.Is(err, unix.ENOMEM):
		return "No memory is left to start the process."
	}
	return ""
}

// loss describes a lost life for the choice of the pause after it.
type loss struct {
	cause Cause
	// started reports whether the stub became ready, and served whether it then answered a batch
	// other than a warm-up.
	started, served bool
}
