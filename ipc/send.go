package ipc

import (
	"errors"
	"fmt"
	"time"

	"github.com/nereid-serving/nereid/panics"
)

// ErrClosed means that the life of the stub has ended.
var ErrClosed = errors.New("channel is closed")

// retryPause is the time after which frames without room are tried again. It matters only while a
// stub is behind by a whole ring.
const retryPause = 200 * time.Microsecond

// Begin starts a frame with a body of n bytes and returns the frame, whose body begins at
// HeaderSize. The caller fills it completely and calls Commit. Between the two the channel's send
// lock is held. n is at most MaxFrame-HeaderSize. After an error nothing was begun.
func (c *Channel) Begin(kind Kind, id uint64, n int) ([]byte, error) {
	size := HeaderSize + n
	if size > MaxFrame {
		return nil, fmt.Errorf("frame %s of %d bytes: want at most %d", kind, size, MaxFrame)
	}
	c.send.Lock()
	if c.send.closed || c.send.ended {
		c.send.Unlock()
		return nil, ErrClosed
	}
	// The frame is written in the ring itself, so its bytes are copied once. The lock, held until
	// Commit, makes this goroutine the only producer.
	var frame []byte
	err := c.guard(func() (err error) {
		if len(c.send.pending) == 0 {
			frame, err = c.send.reserve(size)
		}
		return err
	})
	if err == nil && frame == nil {
		// Frames stay in order: once one waits, all later ones do.
		if c.send.bytes+size > c.config.MaxPending {
			err = Broken("backlog", "stub does not read: %d bytes of frames are waiting", c.send.bytes)
		}
		frame = make([]byte, size) // bound: MaxPending
		c.send.staged = frame
	}
	if err != nil {
		c.send.staged = nil
		c.send.Unlock()
		return nil, err
	}
	putHeader(frame, size, kind, 0, c.send.life, id)
	return frame, nil
}

// Fill sends a frame with a body of n bytes that fill writes into the frame. If fill panics,
// nothing was begun.
func (c *Channel) Fill(kind Kind, id uint64, n int, fill func(frame []byte)) (position uint64, at int64, err error) {
	frame, err := c.Begin(kind, id, n)
	if err != nil {
		return 0, 0, err
	}
	filled := false
	defer func() {
		if !filled {
			c.send.staged = nil
			c.send.Unlock()
		}
	}()
	fill(frame)
	filled = true
	position, at = c.Commit()
	return position, at, nil
}

// SetSpilled marks a begun frame whose body is a descriptor.
func SetSpilled(frame []byte) { frame[6] |= byte(FlagSpilled) }

// SetAhead marks a begun EXECUTE frame whose batch may be withdrawn.
func SetAhead(frame []byte) { frame[6] |= byte(FlagAhead) }

// Commit publishes the frame of Begin and wakes the stub if it sleeps. It returns the frame's
// position, by which Taken tells whether the stub has taken it, and the time of publication,
// CLOCK_MONOTONIC ns. A frame that waits for room has its future position, which depends only on
// the frames before it.
func (c *Channel) Commit() (position uint64, at int64) {
	at = now()
	ring := false
	if c.send.staged != nil {
		if len(c.send.pending) == 0 {
			c.send.planned = c.send.published
		}
		need := uint64(Align8(len(c.send.staged)))
		c.send.planned += padding(c.send.planned, need) + need
		position = c.send.planned
		c.send.pending = append(c.send.pending, c.send.staged) // bound: MaxPending
		c.send.bytes += len(c.send.staged)
		c.send.staged = nil
		c.scheduleRetryLocked()
	} else {
		ring = c.publishLocked(at)
		position = c.send.published
	}
	// The bell rings without the lock: it is a system call, and another goroutine may send
	// meanwhile.
	c.send.Unlock()
	if ring {
		c.downBell.Ring()
	}
	return position, at
}

// Backlog returns the bytes of frames that wait for room in the ring.
func (c *Channel) Backlog() int {
	c.send.Lock()
	defer c.send.Unlock()
	return c.send.bytes
}

// Taken reports whether the stub may have taken the frame at that position. It believes the stub: a
// stub that lies about its head harms only itself.
func (c *Channel) Taken(position uint64) bool {
	c.send.Lock()
	defer c.send.Unlock()
	if c.send.closed {
		return true
	}
	taken := true
	_ = c.guard(func() error {
		taken = c.send.head.Load() >= position
		return nil
	})
	return taken
}

// Withdraw asks the stub not to execute a batch ahead, and reports whether it certainly will not.
// Otherwise the stub executes or skips the batch, and reports which. Numbers of batches grow. A
// batch is only withdrawn after the stub has reported on the batch withdrawn before it.
//
// Ordering: withdrawn is swapped, a full barrier, before begun is loaded; the
// stub stores begun and passes a barrier before it looks whether the batch is
// withdrawn. So one of the two sees the other.
func (c *Channel) Withdraw(number uint64) (certain bool) {
	c.send.Lock()
	defer c.send.Unlock()
	if c.send.closed {
		return false
	}
	c.send.withdrawn.Swap(number)
	_ = c.guard(func() error {
		certain = c.send.begun.Load() < number
		return nil
	})
	return certain
}

// Send sends a frame with the given body.
func (c *Channel) Send(kind Kind, id uint64, body []byte) error {
	_, _, err := c.Fill(kind, id, len(body), func(frame []byte) { copy(frame[HeaderSize:], body) })
	return err
}

// publishLocked publishes the reserved frame and reports whether the stub must
// be rung. Ordering: tail is swapped, which is a full barrier, before
// the stub's sleep word is loaded; the stub makes its word odd and passes a
// barrier before it looks at tail a last time. So one of the two sees the other.
func (c *Channel) publishLocked(at int64) (ring bool) {
	c.send.Commit(at)
	_ = c.guard(func() error {
		// Each sleep has its own odd value: one ring wakes the stub, more would be wasted system
		// calls.
		word := c.send.asleep.Load()
		if word&1 == 1 && word != c.send.rung {
			c.send.rung = word
			ring = true
		}
		return nil
	})
	return ring
}

func (c *Channel) scheduleRetryLocked() {
	if !c.send.retry {
		c.send.retry = true
		panics.AfterFunc(c.config.Log, panics.Life, retryPause, c.retry, func(err error) {
			if c.config.Broken != nil {
				c.config.Broken(err)
			}
		})
	}
}

// retry moves waiting frames into the ring as far as they fit.
func (c *Channel) retry() {
	if c.sendWaiting() {
		c.downBell.Ring()
	}
}

func (c *Channel) sendWaiting() (ring bool) {
	c.send.Lock()
	defer c.send.Unlock()
	c.send.retry = false
	for len(c.send.pending) > 0 && !c.send.closed {
		first := c.send.pending[0]
		var room []byte
		err := c.guard(func() (err error) {
			room, err = c.send.reserve(len(first))
			return err
		})
		if room == nil {
			// The next Begin or Receive reports an invalid head.
			if err == nil {
				c.scheduleRetryLocked()
			}
			break
		}
		copy(room, first)
		ring = c.publishLocked(now()) || ring
		c.send.bytes -= len(first)
		c.send.pending[0] = nil
		c.send.pending = c.send.pending[1:]
	}
	return ring
}
