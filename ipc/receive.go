package ipc

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/internal/processors"
	"github.com/nereid-serving/nereid/panics"
	"github.com/nereid-serving/nereid/shm"
	"golang.org/x/sys/unix"
)

// Handler receives each frame in the order of sending. An error ends the channel's use.
type Handler func(Frame) error

// guard runs f, protected against truncation of the file by the stub where that is possible.
func (c *Channel) guard(f func() error) error {
	if c.up.Sealed() {
		return f()
	}
	var inner error
	if err := shm.Guard(func() { inner = f() }); err != nil {
		return Broken("memory", "%v", err)
	}
	return inner
}

// Receive passes all available frames to handle and returns their number. It does not wait. If a
// stub sends without end, Receive takes at most the bytes of one ring, so that the call returns and
// others can receive.
func (c *Channel) Receive(handle Handler) (n int, err error) { return c.receive(0, handle) }

// receive is Receive for a caller that has just read the clock; looked is 0 otherwise.
func (c *Channel) receive(looked int64, handle Handler) (n int, err error) {
	c.recv.Lock()
	defer c.recv.Unlock()
	// A panic over a frame ends the use of this channel alone.
	defer panics.Recover(&c.config.Log, panics.Life, &err)
	if c.recv.closed {
		return 0, ErrClosed
	}
	// A thread of the stub may wait for its grant while others send frames: it comes first.
	if err := c.guard(c.answerGrantLocked); err != nil {
		return 0, err
	}
	for last := c.recv.position + shm.RingSize; c.recv.position < last; {
		var (
			f     Frame
			flags uint16
			ok    bool
		)
		err := c.guard(func() (err error) {
			f, flags, ok, err = c.recv.Next()
			return err
		})
		if err == nil && c.ret.overrun.Load() {
			err = Broken("blocks", "more than %d blocks are outstanding", shm.ReturnRingSlots)
		}
		if err != nil || !ok {
			return n, err
		}
		// The later frames wait for the first one's handler.
		f.Seen, looked = looked, 0
		n++
		// With recv held: frames are handled in the order in which they were sent, whichever
		// goroutine reads them.
		if flags&FlagSpilled != 0 {
			err = c.handleSpilled(f, handle)
		} else {
			err = handle(f)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// handleSpilled passes on a frame whose body lies in the arena.
func (c *Channel) handleSpilled(f Frame, handle Handler) error {
	d, err := ParseSpilled(f.Body, InArena)
	if err != nil {
		return err
	}
	if d.Length > MaxSpilledBody {
		return Broken("frame", "a spilled body has %d bytes, want at most %d", d.Length, MaxSpilledBody)
	}
	if c.config.Spilled != nil {
		defer c.config.Spilled(int64(d.Length))()
	}
	if f.Body, err = c.unspill(&d); err != nil {
		return err
	}
	f.Spilled = true
	return handle(f)
}

// unspill copies a body from the arena, and returns its block.
func (c *Channel) unspill(d *Descriptor) ([]byte, error) {
	// Copied and returned at once: the stub needs the room, and checked data must not change
	// afterwards.
	extent, bytes, err := c.arena.Lend(shm.Ticket(d.Ticket), d.Offset, d.Length)
	if err != nil {
		return nil, Broken("descriptor", "spilled body: %v", err)
	}
	defer extent.Release()
	copied := make([]byte, len(bytes)) // bound: MaxSpilledBody, charged by Spilled
	err = c.guard(func() error {
		copy(copied, bytes)
		return nil
	})
	return copied, err
}

// Run receives until the stub closes its end (nil), breaks the protocol or the
// channel is closed (nil). It sleeps on the bell while nothing comes.
func (c *Channel) Run(handle Handler) error {
	// The reader touches the control words without a lock: it keeps them mapped.
	c.down.Retain()
	c.up.Retain()
	defer c.up.Release()
	defer c.down.Release()
	scratch := make([]byte, 512)
	for {
		n, err := c.Receive(handle)
		if errors.Is(err, ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 || c.linger() {
			continue
		}
		// The word is odd before the ring is checked for the last time: a frame that this check
		// misses was published after the word became odd, and its producer rings.
		c.setAsleep(true)
		if c.anythingPending() {
			c.setAsleep(false)
			continue
		}
		err = c.upBell.Wait(scratch)
		c.setAsleep(false)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			// Frames before the end still count, but their handlers must not send.
			c.send.Lock()
			c.send.ended = true
			c.send.Unlock()
			if _, err := c.Receive(handle); err != nil && !errors.Is(err, ErrClosed) {
				return err
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *Channel) anythingPending() (yes bool) {
	yes = true // a fault counts as something: Receive reports it
	_ = c.guard(func() error {
		yes = c.recv.Pending() || c.grant.pending()
		return nil
	})
	return yes
}

// lingerAtMost limits linger however busy the other goroutines are.
const lingerAtMost = time.Millisecond

// linger looks for frames for the time of Config.Linger, and reports whether one came. It lets
// other goroutines run first, then other processes. Only the time given to processes counts, and
// shows how busy the machine is.
func (c *Channel) linger() bool {
	if c.config.Linger == nil || !processors.MaySpin() {
		return false
	}
	budget := c.config.Linger()
	if budget <= 0 || !c.spin.TryLock() {
		return false
	}
	defer c.spin.Unlock()
	begin := time.Now()
	now := begin
	var idle, longest time.Duration
	defer func() { c.config.Lingered(longest) }()
	for idle <= budget && now.Sub(begin) <= lingerAtMost {
		before := now
		runtime.Gosched()
		now = time.Now()
		if c.anythingPending() {
			return true
		}
		if now.Sub(before) > quickGosched {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		after := time.Now()
		idle += after.Sub(now)
		longest = max(longest, after.Sub(now))
		now = after
		if c.anythingPending() {
			return true
		}
	}
	return false
}

// quickGosched is the time within which Gosched returns if no other goroutine can run.
const quickGosched = 3 * time.Microsecond

// setAsleep and setSpinner keep this side's sleep word odd exactly while the reader sleeps and no
// goroutine spins. Each change stores a new value, by which the stub knows whether it has rung for
// this sleep. The swap is the full barrier that must lie between it and the last look at
// the ring.
func (c *Channel) setAsleep(yes bool) {
	c.wake.Lock()
	c.wake.asleep = yes
	c.updateWakeLocked()
	c.wake.Unlock()
}

func (c *Channel) setSpinner(yes bool) {
	c.wake.Lock()
	c.wake.spinner = yes
	c.updateWakeLocked()
	c.wake.Unlock()
}

func (c *Channel) updateWakeLocked() {
	word := c.wake.word.Load()
	if odd := word&1 == 1; odd != (c.wake.asleep && !c.wake.spinner) {
		c.wake.word.Swap(word + 1)
	}
}

// spinners counts the spinning goroutines of this process. Each occupies a processor, and one of
// several processors is always left for others.
var spinners atomic.Int32

// Spin looks for frames until none has come for the budget, or done has something to receive. It
// yields its processor between looks and passes frames to handle. It returns the duration of the
// longest yield. At most one goroutine spins on a channel; others return at once. If also is not
// nil, Spin calls it between looks; it reports whether it found something.
func (c *Channel) Spin(budget time.Duration, done <-chan struct{}, handle Handler, also func() bool) (longest time.Duration, err error) {
	if spinners.Add(1) > max(int32(processors.Number())-1, 1) || !processors.MaySpin() || !c.spin.TryLock() {
		spinners.Add(-1)
		return 0, nil
	}
	defer spinners.Add(-1)
	defer c.spin.Unlock()
	// Close unmaps, and sets closed, with spin held: the mappings stay until spin is unlocked.
	if c.recv.closed {
		return 0, nil
	}
	c.setSpinner(true)
	// time.Now would read two clocks.
	begin := now()
	last := begin // the clock was read here, and only a look at the ring follows
	for len(done) == 0 {
		if c.anythingPending() {
			if _, err = c.receive(last, handle); err != nil || len(done) > 0 {
				break
			}
			last = now()
			begin = last
			continue
		}
		if also != nil && also() {
			last = now()
			begin = last
			continue
		}
		// SCHED_YIELD cannot block, so the runtime need not know. Gosched would give this processor
		// to other goroutines, but not to the stub.
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		looked := now()
		longest = max(longest, time.Duration(looked-last))
		last = looked
		if time.Duration(looked-begin) > budget {
			break
		}
	}
	if err == nil {
		err = c.endSpin(handle)
	} else {
		c.setSpinner(false)
	}
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	return longest, err
}

// endSpin lets the stub ring again, and receives the frames that came without a bell. The word
// changes before the look, as in Run: no frame between the two is missed. The frames that Receive
// leaves were published after it began, so the stub has rung for them.
func (c *Channel) endSpin(handle Handler) error {
	c.setSpinner(false)
	if !c.anythingPending() {
		return nil
	}
	_, err := c.Receive(handle)
	return err
}

// Watch makes the caller the spinning goroutine of this channel, which calls Look repeatedly; false
// if another goroutine spins or the channel is closed. Unwatch ends it.
func (c *Channel) Watch() bool {
	if !c.spin.TryLock() {
		return false
	}
	if c.recv.closed { // as in Spin
		c.spin.Unlock()
		return false
	}
	c.setSpinner(true)
	return true
}

// Look passes the available frames to handle and reports whether there were any.
func (c *Channel) Look(handle Handler) (bool, error) {
	if !c.anythingPending() {
		return false, nil
	}
	_, err := c.Receive(handle)
	return true, err
}

// Unwatch ends Watch, and passes the available frames to handle.
func (c *Channel) Unwatch(handle Handler) error {
	defer c.spin.Unlock()
	return c.endSpin(handle)
}

// Posted returns the time at which the stub published its latest frame, CLOCK_MONOTONIC ns. It is
// the stub's word, good for statistics and for decisions that affect only the stub. Only a Handler
// may call it.
func (c *Channel) Posted() int64 {
	var t int64
	_ = c.guard(func() error {
		t = c.recv.Consumer.Posted()
		return nil
	})
	return t
}
