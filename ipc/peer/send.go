package peer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

const (
	// patientTickets is the number of tickets that wait for the response to the current batch; more
	// are sent on their own.
	patientTickets = 64
	// mostTickets is the number of tickets in one frame.
	mostTickets = ipc.MaxInlineBody / 8 / 2
	// quickLooks is how often a side checks a word before it waits a millisecond between checks.
	quickLooks = 100
)

var oneByte = []byte{1}

// Fill sends a frame with a body of n bytes. write fills in all of it. Fill waits while the ring is
// full. A long body is sent in a block, or Fill returns *Exhausted.
func (p *Peer) Fill(kind ipc.Kind, id uint64, n int, write func(body []byte)) error {
	return p.FillAt(0, kind, id, n, write)
}

// FillAt is Fill for a caller that has just read the clock: at is a time from Now at which the
// frame is published, unless the frame is long or must wait for room. 0 means unknown.
func (p *Peer) FillAt(at int64, kind ipc.Kind, id uint64, n int, write func(body []byte)) error {
	if n > ipc.MaxInlineBody {
		return p.fillBlock(kind, id, n, write)
	}
	ring, err := p.fill(at, kind, id, n, false, write)
	if ring {
		p.ring()
	}
	if err == nil {
		p.flush()
	}
	return err
}

// fill publishes a frame and reports whether the server must be rung. If write panics, no frame was
// begun.
func (p *Peer) fill(at int64, kind ipc.Kind, id uint64, n int, spilled bool, write func(body []byte)) (ring bool, err error) {
	p.sending.Lock()
	defer p.sending.Unlock()
	frame, waited, err := p.begin(kind, id, ipc.HeaderSize+n)
	if err != nil {
		return false, err
	}
	if waited {
		at = 0
	}
	if spilled {
		ipc.SetSpilled(frame)
	}
	write(frame[ipc.HeaderSize:])
	return p.commit(at), nil
}

// Send sends a frame with the given body.
func (p *Peer) Send(kind ipc.Kind, id uint64, body []byte) error {
	return p.Fill(kind, id, len(body), func(b []byte) { copy(b, body) })
}

func (p *Peer) fillBlock(kind ipc.Kind, id uint64, n int, write func(body []byte)) error {
	if n > ipc.MaxSpilledBody {
		return &Exhausted{fmt.Sprintf("a response has %d bytes without its tensors, at most %d are allowed", n, ipc.MaxSpilledBody)}
	}
	if p.arena == nil {
		return fmt.Errorf("a body of %d bytes came before INITIALIZE", n)
	}
	block, err := p.arena.Take(int64(n))
	if err != nil {
		return err
	}
	defer block.Release()
	write(block.Bytes())
	ticket, err := p.arena.Lend(block)
	if err != nil {
		return err
	}
	d := ipc.Descriptor{Type: spilledType, Region: ipc.InArena, Offset: block.Offset(), Length: uint64(n), Ticket: ticket}
	ring, err := p.fill(0, kind, id, ipc.DescriptorSize, true, func(body []byte) { d.Put(body) })
	if err != nil {
		p.arena.Withdraw(ticket)
		return err
	}
	if ring {
		p.ring()
	}
	p.flush()
	return nil
}

// spilledType is UINT8, as infer.DataType numbers it.
const spilledType = 2

// begin returns room for a frame and reports whether it had to wait for it. No bell announces room,
// because the server reads as fast as it can. The caller holds sending.
func (p *Peer) begin(kind ipc.Kind, id uint64, size int) (frame []byte, waited bool, err error) {
	for look := 0; ; look++ {
		if err := p.Err(); err != nil {
			return nil, look > 0, err
		}
		frame, err := p.out.Begin(kind, id, size)
		if frame != nil || err != nil {
			if err != nil {
				p.fail(err)
			}
			return frame, look > 0, err
		}
		if look < quickLooks {
			yield()
		} else if err := p.moment(); err != nil {
			return nil, true, err
		}
	}
}

// commit publishes the frame of begin, with the given time (0: now), and reports whether the server
// must be rung. The caller holds sending.
//
// Ordering: tail is swapped, a full barrier, before the server's sleep word is loaded;
// the server makes its word odd before it looks at tail a last time. So one of the two sees the
// other.
func (p *Peer) commit(at int64) (ring bool) {
	if at == 0 {
		at = Now()
	}
	p.out.Commit(at)
	// Each sleep has its own odd value. One ring wakes it; more would be needless system calls.
	if word := p.asleep.Load(); word&1 == 1 && word != p.seen {
		p.seen = word
		return true
	}
	return false
}

// ring wakes the server, even if it is awake. A full pipe already has enough bytes to wake it. If
// the server has ended, the goroutine that reads notices that.
func (p *Peer) ring() { _, _ = shm.RawWrite(uintptr(p.rung[1]), oneByte) }

// tickets holds the tickets of ended loans until a frame carries them.
type tickets struct {
	count atomic.Int32 // of list, read without the lock; usually 0
	// held: they wait for the response to the current batch; strictly: regardless of their number.
	held, strictly atomic.Bool

	mu   sync.Mutex
	list []uint64
}

// GiveBack returns the ticket of a loan, with the response to the current batch or at once.
func (p *Peer) GiveBack(ticket uint64) {
	t := &p.tickets
	t.mu.Lock()
	t.list = append(t.list, ticket)
	n := len(t.list)
	t.count.Store(int32(n))
	t.mu.Unlock()
	if !t.strictly.Load() && (!t.held.Load() || n > patientTickets) {
		p.ReleaseTickets()
	}
}

// HoldTickets sets whether returned tickets wait for the response to a batch, which takes them by
// TakeTickets.
func (p *Peer) HoldTickets(yes bool) { p.tickets.held.Store(yes) }

// KeepTickets makes all tickets wait for TakeTickets, regardless of their number, because
// descriptors of the frame under construction may name their loans.
func (p *Peer) KeepTickets() { p.tickets.strictly.Store(true) }

// TakeTickets appends the waiting tickets to list, for a frame that carries them. It ends the
// effect of KeepTickets.
func (p *Peer) TakeTickets(list []uint64) []uint64 {
	t := &p.tickets
	t.strictly.Store(false)
	if t.count.Load() == 0 {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.list), mostTickets)
	list = append(list, t.list[:n]...)
	t.list = append(t.list[:0], t.list[n:]...)
	t.count.Store(int32(len(t.list)))
	return list
}

// flush sends the tickets that do not wait for a batch.
func (p *Peer) flush() {
	if t := &p.tickets; t.count.Load() > 0 && !t.held.Load() && !t.strictly.Load() {
		p.ReleaseTickets()
	}
}

// ReleaseTickets sends the waiting tickets in frames of their own. An error is that of Err.
func (p *Peer) ReleaseTickets() {
	for {
		list := p.TakeTickets(nil)
		if len(list) == 0 {
			return
		}
		ring, err := p.fill(0, ipc.Released, 0, 8*len(list), false, func(body []byte) { ipc.PutTickets(body, list) })
		if err != nil {
			return
		}
		if ring {
			p.ring()
		}
	}
}
