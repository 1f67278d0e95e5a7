package plugin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc/peer"
)

// collectFirst is the delay of a garbage collection while requests are open that the author may
// have dropped. Only the collector finds them, and it does not run in an idle process. The delay
// doubles up to collectLast.
const (
	collectFirst = time.Second
	collectLast  = time.Minute
)

// standbyInterval is the time between two checks of the execution. If the standby sees the same
// execution twice, it starts to read the ring.
const standbyInterval = 10 * time.Millisecond

// standby is a goroutine that reads the ring while no other goroutine does: during a long Execute,
// and while the author's callbacks or waiting goroutines need frames. Between batches the instance
// reads. While nothing is executed the standby sleeps.
type standby struct {
	peer *peer.Peer
	box  *peer.Box

	count     atomic.Uint64 // number of executions begun
	executing atomic.Uint64 // the number of the running execution; 0: none
	asleep    atomic.Bool   // waits for wake
	wake      chan struct{} // has a value when there may be work

	// answers is true while authors wait for inferences; unasked reports that no inference is left.
	answers atomic.Bool
	unasked func() bool
	// open returns the number of requests that Execute has left open.
	open func() int

	mu     sync.Mutex
	enough []func() bool // conditions of other waiters
}

func newStandby(p *peer.Peer, unasked func() bool, open func() int) *standby {
	return &standby{peer: p, box: peer.NewBox(), wake: make(chan struct{}, 1), unasked: unasked, open: open}
}

// begin is called before Execute.
func (d *standby) begin() {
	d.executing.Store(d.count.Add(1))
	// Ordering: executing is stored before asleep is loaded; run stores asleep before it loads
	// executing.
	if d.asleep.Load() {
		d.nudge()
	}
}

func (d *standby) end() { d.executing.Store(0) }

// need reads the ring until enough returns true. It calls enough after each message.
func (d *standby) need(enough func() bool) {
	d.mu.Lock()
	d.enough = append(d.enough, enough)
	d.mu.Unlock()
	d.nudge()
}

// needAnswers reads the ring until there are no inferences. The caller has begun one.
func (d *standby) needAnswers() {
	if !d.answers.Swap(true) {
		d.nudge()
	}
}

func (d *standby) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// satisfied reports whether no waiter is left.
func (d *standby) satisfied() bool {
	if d.answers.Load() {
		if !d.unasked() {
			return false
		}
		d.answers.Store(false)
		// needAnswers is called after an inference has been counted, so an inference that began
		// between the check above and the store is counted by now.
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
func (d *standby) run() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var before, seen uint64 // executions begun, and the running one, at the last look
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
		tick.Reset(standbyInterval)
		select {
		case <-tick.C:
		case <-d.wake:
		case <-d.peer.Done():
			return
		}
	}
}

// sleep waits for wake, or returns false if the connection has ended.
func (d *standby) sleep() bool {
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
