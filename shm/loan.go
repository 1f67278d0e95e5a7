package shm

import (
	"errors"
	"fmt"
	"sync"
)

// Ticket names a block that one side has lent to the other: an index into the lender's private
// table and, in the high half, the number of uses of that entry. It means nothing to other
// processes.
type Ticket uint64

func makeTicket(slot, generation uint32) Ticket {
	return Ticket(uint64(generation)<<32 | uint64(slot))
}

// Slot returns the index in the lender's table.
func (t Ticket) Slot() uint32 { return uint32(t) }

// Generation returns the number of uses of the entry.
func (t Ticket) Generation() uint32 { return uint32(t >> 32) }

// Held is reference-counted memory of others, such as a client's region, which a stub has mapped
// itself.
type Held interface {
	Retain()
	Release()
}

// Loans is the supervisor's table of the memory that one life of a stub holds: blocks, and memory
// of others.
type Loans struct {
	// Kept receives the change in bytes of blocks that the stub keeps longer than it needs them to
	// answer. It is called with the lock held; it may be nil.
	Kept func(more int64)

	mu     sync.Mutex
	slots  []loan   // bound: the blocks that the life may keep, each of at least a page
	spare  []uint32 // bound: slots
	bytes  int64
	kept   int64 // told to Kept
	closed bool
}

type loan struct {
	block      *Block // nil if held is lent, or nothing
	held       Held   // nil if block is lent, or nothing
	group      *Group // of block; nil: the block counts as kept from the beginning
	generation uint32
}

// Group is the blocks that a stub needs to answer one batch. Until then they do not count as kept.
// Guarded by the lock of Loans.
type Group struct {
	bytes    int64
	answered bool
}

// Lend retains b for the stub and returns the ticket with which the stub will return it; false
// after the end of the life.
func (l *Loans) Lend(b *Block) (Ticket, bool) { return l.LendFor(b, nil) }

// LendFor is Lend for a block of a group.
func (l *Loans) LendFor(b *Block, g *Group) (Ticket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, s := l.takeLocked()
	if s == nil {
		return 0, false
	}
	s.block, s.group = b, g
	l.bytes += b.n
	l.countLocked(g, b.span.size)
	// Under the lock, so that Close cannot end a loan before its reference exists.
	b.Retain()
	return t, true
}

// LendHeld is Lend for memory of others. Its bytes are not counted.
func (l *Loans) LendHeld(held Held) (Ticket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, s := l.takeLocked()
	if s == nil {
		return 0, false
	}
	s.held = held
	held.Retain() // as in Lend
	return t, true
}

// Answered reports that the batch of a group has been answered: its blocks that are still lent
// count as kept.
func (l *Loans) Answered(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && !g.answered {
		g.answered = true
		l.countLocked(nil, g.bytes)
	}
}

// countLocked counts bytes of a group that are lent, or returned.
func (l *Loans) countLocked(g *Group, n int64) {
	if g != nil && !g.answered {
		g.bytes += n
		return
	}
	l.kept += n
	if l.Kept != nil && n != 0 {
		l.Kept(n)
	}
}

// takeLocked returns an entry for a new loan, and its ticket; nil after the end of the life.
func (l *Loans) takeLocked() (Ticket, *loan) {
	if l.closed {
		return 0, nil
	}
	var slot uint32
	if n := len(l.spare); n > 0 {
		slot = l.spare[n-1]
		l.spare = l.spare[:n-1]
	} else {
		slot = uint32(len(l.slots))
		l.slots = append(l.slots, loan{})
	}
	s := &l.slots[slot]
	// A stub that returns the same ticket twice names an old generation, and cannot take the block
	// of the next loan in this slot.
	s.generation++
	return makeTicket(slot, s.generation), s
}

// Return ends a loan. An unknown ticket is the stub's error.
func (l *Loans) Return(t Ticket) error {
	l.mu.Lock()
	s, err := l.findLocked(t)
	if err != nil {
		l.mu.Unlock()
		return err
	}
	b, held, g := s.block, s.held, s.group
	s.block, s.held, s.group = nil, nil, nil
	l.spare = append(l.spare, t.Slot())
	if b != nil {
		l.bytes -= b.n
		l.countLocked(g, -b.span.size)
	}
	l.mu.Unlock()
	// Outside the lock: the last reference locks the pool, and may call the function of OnFree.
	if b != nil {
		b.Release()
	} else {
		held.Release()
	}
	return nil
}

// Borrow retains the block of a loan that the stub still holds and returns it
// with the bytes [offset, offset+n) of its region, which must lie inside it.
func (l *Loans) Borrow(t Ticket, offset, n uint64) (*Block, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.findLocked(t)
	if err != nil {
		return nil, nil, err
	}
	b := s.block
	if b == nil {
		return nil, nil, errors.New("the loan is of a client's memory, which is not passed on")
	}
	begin, size := b.Offset(), uint64(b.n)
	if offset < begin || offset-begin > size || n > size-(offset-begin) {
		return nil, nil, fmt.Errorf("range [%d, +%d) lies outside the loan [%d, +%d)", offset, n, begin, size)
	}
	// While the lock is held the loan has its own reference, so the count cannot be 0: Return,
	// which another goroutine may call for the stub, comes before or after.
	b.Retain()
	return b, b.Bytes()[offset-begin:][:n:n], nil
}

func (l *Loans) findLocked(t Ticket) (*loan, error) {
	if uint64(t.Slot()) >= uint64(len(l.slots)) {
		return nil, fmt.Errorf("ticket %d names slot %d of %d", t, t.Slot(), len(l.slots))
	}
	s := &l.slots[t.Slot()]
	if s.block == nil && s.held == nil || s.generation != t.Generation() {
		return nil, fmt.Errorf("ticket of slot %d is of generation %d, which is not lent", t.Slot(), t.Generation())
	}
	return s, nil
}

// Count returns the number of loans and their bytes.
func (l *Loans) Count() (loans int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots) - len(l.spare), l.bytes
}

// Close ends all loans: the stub has died, and had the region read-only, so the blocks can be
// reused at once. Nothing can be lent any more.
func (l *Loans) Close() {
	l.mu.Lock()
	// The table is taken as a whole: a later Return finds no ticket, and no block is released
	// twice.
	slots := l.slots
	l.countLocked(nil, -l.kept)
	l.slots, l.spare, l.bytes, l.closed = nil, nil, 0, true
	l.mu.Unlock()
	for _, s := range slots {
		if s.block != nil {
			s.block.Release()
		} else if s.held != nil {
			s.held.Release()
		}
	}
}
