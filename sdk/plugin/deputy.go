package plugin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc/peer"
)

// collectFirst is how long the deputy waits before it has garbage collected, where requests have been left open by an author who may have dropped
// them: that is found by the collector alone, which an idle process does not run. It waits twice as long each time, up to collectLast.
const (
	collectFirst = time.Second
	collectLast  = time.Minute
)

// deputyLook is the time between two looks at the execution. One that is on at two of them is not short: the ring is read beside it.
const deputyLook = 10 * time.Millisecond

// deputy is a goroutine that reads the ring where another one would not: while Execute takes long, and while callbacks of the author or its
// waiting goroutines need what comes. While the instance waits for its next batch, that one reads. While nothing is executed the
// deputy sleeps.
type deputy struct {
	peer *peer.Peer
	box  *peer.Box

	count     atomic.Uint64 // of executions that have begun
	executing atomic.Uint64 // the number of the one that is on, 0: none is
	asleep    atomic.Bool   // until it is woken
	wake      chan struct{} // has a value when it is to look at everything

	// answers: authors wait for answers to inferences, of which none are left when unasked says so.
	answers atomic.Bool
	unasked func() bool
	// open counts the requests that were left open by Execute.
	open func() int

	mu     sync.Mutex
	enough []func() bool // of each that needs the ring read for another reason, until it says so
}

func newDeputy(p *peer.Peer, unasked func() bool, open func() int) *deputy {
	return &deputy{peer: p, box: peer.NewBox(), wake: make(chan struct{}, 1), unasked: unasked, open: open}
}

// begin is called before Execute.
func (d *deputy) begin() {
	d.executing.Store(d.count.Add(1))
	// Ordering: executing is stored before asleep is loaded; run stores asleep before it loads executing.
	if d.asleep.Load() {
		d.nudge()
	}
}

// end is called when the batch has been answered.
func (d *deputy) end() { d.executing.Store(0) }

// need has the ring read until enough says that it is enough, which is asked behind each message.
func (d *deputy) need(enough func() bool) {
	d.mu.Lock()
	d.enough = append(d.enough, enough)
	d.mu.Unlock()
	d.nudge()
}

// needAnswers has the ring read until there are no inferences. The caller's has begun.
func (d *deputy) needAnswers() {
	if !d.answers.Swap(true) {
		d.nudge()
	}
}

func (d *deputy) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// satisfied reports whether all have enough.
func (d *deputy) satisfied() bool {
	if d.answers.Load() {
		if !d.unasked() {
			return false
		}
		d.answers.Store(false)
		// Ordering: needAnswers is called with an inference counted. One that came between the look and the store is seen here.
		if !d.unasked() {
			d.answers.Store(true)
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.enough[:0]
	for _, enough := range d.enough {
		if !enough() {
			left = append(left, enough)
		}
	}
	clear(d.enough[len(left):])
	d.enough = left
	return len(left) == 0
}

// run reads until the connection ends.
func (d *deputy) run() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var before, seen uint64 // executions that had begun, and that was on, at the last look
	for {
		on, begun := d.executing.Load(), d.count.Load()
		if !d.satisfied() || on != 0 && on == seen {
			if d.peer.Attend(d.box, func() bool { return d.satisfied() && (on == 0 || d.executing.Load() != on) }) != nil {
				return
			}
			on, begun = d.executing.Load(), d.count.Load()
		}
		if on == 0 && begun == before {
			d.asleep.Store(true)
			if d.executing.Load() == 0 && d.satisfied() && !d.sleep() {
				return
			}
			d.asleep.Store(false)
			on, begun = d.executing.Load(), d.count.Load()
		}
		before, seen = begun, on
		tick.Reset(deputyLook)
		select {
		case <-tick.C:
		case <-d.wake:
		case <-d.peer.Done():
			return
		}
	}
}

// sleep sleeps until it is woken; false: the connection has ended.
func (d *deputy) sleep() bool {
	for wait := collectFirst; d.open() > 0; wait = min(2*wait, collectLast) {
		select {
		case <-time.After(wait):
			runtime.GC()
		case <-d.wake:
			return true
		case <-d.peer.Done():
			return false
		}
	}
	select {
	case <-d.wake:
		return true
	case <-d.peer.Done():
		return false
	}
}
