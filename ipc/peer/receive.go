package peer

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/ipc"
	"golang.org/x/sys/unix"
)

// Box holds messages for a goroutine that waits for them.
type Box struct {
	count    atomic.Int32 // of messages, read without the lock; usually 0
	mu       sync.Mutex
	messages []Message
	// wake receives a value when there is a message, or when the goroutine must read by itself. One
	// value is enough, because the goroutine checks everything.
	wake chan struct{}
}

// NewBox returns an empty box.
func NewBox() *Box { return &Box{wake: make(chan struct{}, 1)} }

// Take returns the oldest message, if there is one, without waiting.
func (b *Box) Take() (m Message, ok bool) {
	if b.count.Load() == 0 {
		return m, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.messages) == 0 {
		return m, false
	}
	m = b.messages[0]
	b.messages[0] = Message{}
	if b.messages = b.messages[1:]; len(b.messages) == 0 {
		b.messages = nil
	}
	b.count.Store(int32(len(b.messages)))
	return m, true
}

// Put adds a message. It is called by the code that calls Route, and for messages that a goroutine
// of this process creates.
func (b *Box) Put(m Message) {
	m.Seen = 0 // by another goroutine than the one that takes it
	b.mu.Lock()
	b.messages = append(b.messages, m)
	b.count.Store(int32(len(b.messages)))
	b.mu.Unlock()
	b.Nudge()
}

// Nudge wakes the goroutine that waits for the box, so that it checks its condition again.
func (b *Box) Nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Receive waits for a message for box, and reads for all other boxes meanwhile. spin controls this
// wait; nil selects that of SetSpin. since is a time that the caller has just read with Now, and
// the start of the wait; 0 means unknown. The error is that of Err.
func (p *Peer) Receive(box *Box, spin *Spin, since int64) (Message, error) {
	if spin == nil {
		spin = &p.spin
	}
	enlisted := false
	for {
		if p.reading.TryLock() {
			m, err := p.read(box, spin, since)
			p.reading.Unlock()
			if enlisted {
				p.leave(box)
			}
			p.handOn()
			return m, err
		}
		// The box is enlisted before another try. The goroutine that reads checks the list after
		// unlocking, so one of the two sees the other.
		if !enlisted {
			p.enlist(box)
			enlisted = true
			continue
		}
		select {
		case <-box.wake:
		case <-p.ended.done:
		}
		since = 0
		m, ok := box.Take()
		if !ok && p.Err() == nil {
			continue
		}
		p.leave(box)
		p.handOn() // the nudge may have been one to read
		if !ok {
			return m, p.Err()
		}
		return m, nil
	}
}

// read reads until a message for box has arrived. The caller holds reading.
func (p *Peer) read(box *Box, spin *Spin, since int64) (Message, error) {
	for {
		if m, ok := box.Take(); ok {
			return m, nil
		}
		m, err := p.wait(spin, since)
		if err != nil {
			return m, err
		}
		since = 0
		switch to := p.route(m); to {
		case nil:
		case box:
			return m, nil
		default:
			to.Put(m)
		}
	}
}

// enlist asks the goroutine that reads to nudge box when it stops reading.
func (p *Peer) enlist(box *Box) {
	p.waiting.Lock()
	p.waiting.boxes = append(p.waiting.boxes, box)
	p.waiting.count.Store(int32(len(p.waiting.boxes)))
	p.waiting.Unlock()
}

// leave removes box from the list of waiters.
func (p *Peer) leave(box *Box) {
	p.waiting.Lock()
	if i := slices.Index(p.waiting.boxes, box); i >= 0 {
		p.waiting.boxes = slices.Delete(p.waiting.boxes, i, i+1)
		p.waiting.count.Store(int32(len(p.waiting.boxes)))
	}
	p.waiting.Unlock()
}

// handOn lets another waiting goroutine read, if there is one. It is called when reading is free.
func (p *Peer) handOn() {
	if p.waiting.count.Load() == 0 {
		return
	}
	p.waiting.Lock()
	if len(p.waiting.boxes) > 0 {
		p.waiting.boxes[0].Nudge()
	}
	p.waiting.Unlock()
}

// Look passes the available messages to route, without waiting. While another goroutine reads, that
// goroutine does it.
func (p *Peer) Look() {
	if !p.in.Pending() || !p.reading.TryLock() {
		return
	}
	for p.in.Pending() && p.Err() == nil {
		m, err := p.wait(&p.spin, 0)
		if err != nil {
			break
		}
		p.deliver(m)
	}
	p.reading.Unlock()
	p.handOn()
}

// Attend reads for others, and sleeps while nothing arrives, until enough returns true. It calls
// enough after each message. Only the caller uses box: Nudge makes Attend call enough again while
// another goroutine reads. The error is that of Err.
func (p *Peer) Attend(box *Box, enough func() bool) error {
	enlisted := false
	for !enough() {
		if p.reading.TryLock() {
			err := p.Err()
			for err == nil && !enough() {
				var m Message
				if m, err = p.wait(&p.spin, 0); err == nil {
					p.deliver(m)
				}
			}
			p.reading.Unlock()
			if enlisted {
				p.leave(box)
			}
			p.handOn()
			return err
		}
		if !enlisted { // as in Receive
			p.enlist(box)
			enlisted = true
			continue
		}
		select {
		case <-box.wake:
		case <-p.ended.done:
			p.leave(box)
			return p.Err()
		}
	}
	if enlisted {
		p.leave(box)
		p.handOn()
	}
	return nil
}

// Linger reads for others until enough returns true or spin is over. It never sleeps, and returns
// at once while another goroutine reads.
func (p *Peer) Linger(spin *Spin, enough func() bool) {
	if !p.reading.TryLock() {
		return
	}
	for p.Err() == nil && !enough() {
		if !p.in.Pending() && !p.spinFor(spin) {
			break
		}
		m, err := p.wait(spin, 0)
		if err != nil {
			break
		}
		p.deliver(m)
	}
	p.reading.Unlock()
	p.handOn()
}

// deliver passes a message to route and puts it into the box that route returns. The caller holds
// reading.
func (p *Peer) deliver(m Message) {
	if to := p.route(m); to != nil {
		to.Put(m)
	}
}

// spinFor polls for a frame as long as spin allows, and reports whether one has arrived. The caller
// holds reading.
func (p *Peer) spinFor(spin *Spin) bool {
	began := Now()
	if !spin.worthwhile() {
		// The actual wait is not known here. Halving it makes later waits try again whether it has become
		// shorter.
		spin.waited(spin.budget / 2)
		return false
	}
	p.look(spin, began)
	if !p.in.Pending() {
		spin.waited(2 * spin.budget)
		return false
	}
	spin.waited(p.in.Posted() - began)
	return true
}

// wait takes the next frame out of the ring. It has been waiting since the given time; 0 means now.
// The caller holds reading.
func (p *Peer) wait(spin *Spin, since int64) (Message, error) {
	seen := int64(0)
	for {
		if err := p.Err(); err != nil {
			return Message{}, err
		}
		f, flags, ok, err := p.in.Next()
		if err != nil {
			p.fail(err)
			return Message{}, err
		}
		if ok {
			f.Seen = seen
			m := Message{Frame: f, Ahead: flags&ipc.FlagAhead != 0}
			if flags&ipc.FlagSpilled != 0 {
				m.Body, m.Lost = p.unspill(m.Body)
				m.Seen = 0 // a long body has been copied
			}
			return m, nil
		}
		if seen, err = p.awaitTail(spin, since); err != nil {
			p.fail(err)
			return Message{}, err
		}
	}
}

// unspill copies a body out of *requests*, and returns its block.
func (p *Peer) unspill(body []byte) ([]byte, error) {
	d, err := ipc.ParseSpilled(body, ipc.InRequests)
	if d.Region == ipc.InRequests && len(body) >= ipc.DescriptorSize {
		defer p.GiveBack(d.Ticket)
	}
	if err != nil {
		return nil, err
	}
	return p.requests.copyOf(d.Offset, d.Length)
}

// lonely is true if this process has one processor: a goroutine that spins must yield it to others
// now and then.
var lonely = runtime.GOMAXPROCS(0) == 1

// awaitTail waits until the ring is not empty, like wait, and returns the time at which that was
// seen by polling, or 0 after a sleep. The caller holds reading.
func (p *Peer) awaitTail(spin *Spin, since int64) (seen int64, err error) {
	if since == 0 {
		since = Now()
	}
	if spin.worthwhile() {
		seen = p.look(spin, since)
	}
	for !p.in.Pending() {
		seen = 0
		if err := p.sleepOnce(); err != nil {
			return 0, err
		}
	}
	spin.waited(p.in.Posted() - since)
	return seen, nil
}

// look polls for a frame for the budget of spin, yields the core between polls, and returns the
// time of the last poll. The caller holds reading.
func (p *Peer) look(spin *Spin, began int64) (last int64) {
	before := began
	for round := 1; ; round++ {
		// SCHED_YIELD, because Gosched would yield this processor to other goroutines, but not to the
		// server.
		yield()
		now := Now()
		there := p.in.Pending()
		if slowed(now-before, there, now-p.in.Posted()) {
			spin.slow()
			return now
		}
		if there || now-began > spin.budget {
			spin.cleaned()
			return now
		}
		if before = now; lonely && round%16 == 0 {
			runtime.Gosched()
			before = Now()
		}
	}
}

// sleepOnce sleeps until the bell rings or memory must be given back.
//
// Ordering: the word becomes odd before the ring is checked a last time, by a swap, a full barrier.
// A frame that this check misses was published after the word became odd, and its producer rings.
func (p *Peer) sleepOnce() error {
	patience := p.patience()
	p.sleeps++
	p.sleep.Swap(p.sleeps)
	gone, err := false, error(nil)
	if !p.in.Pending() {
		gone, err = p.awaitBell(patience)
	}
	p.sleeps++
	p.sleep.Store(p.sleeps)
	if err == nil && gone && !p.in.Pending() {
		err = ErrGone
	}
	return err
}

// awaitBell blocks this thread until the bell rings, or until patience has passed if it is not
// negative. The runtime's poller would wake the goroutine 2 µs later.
func (p *Peer) awaitBell(patience time.Duration) (gone bool, err error) {
	if patience >= 0 {
		rung := []unix.PollFd{{Fd: int32(p.rung[0]), Events: unix.POLLIN}}
		n, err := unix.Poll(rung, int(patience/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return false, os.NewSyscallError("poll", err)
		}
		if n <= 0 {
			return false, nil
		}
	}
	n, err := unix.Read(p.rung[0], p.scratch[:])
	for err == unix.EINTR {
		n, err = unix.Read(p.rung[0], p.scratch[:])
	}
	if err != nil {
		return false, fmt.Errorf("the bell: %w", os.NewSyscallError("read", err))
	}
	return n == 0, nil
}

// SetSpin sets how long to poll for a frame before sleeping. It is called before other goroutines
// receive.
func (p *Peer) SetSpin(spin Spin) { p.spin = spin }

// moment waits a millisecond for a word of the server's that comes without a bell, or less if the
// server has ended.
func (p *Peer) moment() error {
	hung := []unix.PollFd{{Fd: int32(p.rung[0])}}
	if n, err := unix.Poll(hung, 1); n > 0 && err == nil {
		p.fail(ErrGone)
	}
	return p.Err()
}
