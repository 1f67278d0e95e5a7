package cudaipc

import (
	"sync"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// mostLent is the number of allocations that a stub may have lent. A pool grows by large steps.
const mostLent = 256

// Lent tracks the allocations that the stub of one life has lent.
type Lent struct {
	arena  *shm.Arena // counts and returns the stub's tickets
	copier Copier

	mu     sync.Mutex // guards the following fields against Close
	closed bool
	last   uint64                     // latest number; numbers grow, so none is used twice
	all    map[uint64]*foreign.Device // bound: mostLent
}

// NewLent creates the table of a stub that has lent nothing. The arena is the stub's. copier may be
// nil.
func NewLent(arena *shm.Arena, copier Copier) *Lent {
	return &Lent{arena: arena, copier: copier, all: make(map[uint64]*foreign.Device)}
}

// Receive handles LEND and UNLEND. An error ends the life.
func (l *Lent) Receive(f ipc.Frame) error {
	if f.Kind == ipc.Unlend {
		return l.unlend(f)
	}
	memory, err := ipc.ParseAllocation(f.Body)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ipc.ErrClosed
	case f.ID <= l.last || f.ID > ipc.MaxAllocation:
		return ipc.Broken("device", "LEND of number %d, want one between %d and %d", f.ID, l.last+1, ipc.MaxAllocation)
	case len(l.all) >= mostLent:
		return ipc.Broken("quota", "more than %d allocations of devices are lent", mostLent)
	}
	l.last = f.ID
	l.all[f.ID] = memory
	return nil
}

func (l *Lent) unlend(f ipc.Frame) error {
	if len(f.Body) != 0 {
		return ipc.Broken("frame", "UNLEND has %d bytes, want none", len(f.Body))
	}
	l.mu.Lock()
	memory := l.all[f.ID]
	// Only this goroutine creates tensors in it, so none can appear after this check.
	if memory == nil || !memory.Sole() {
		l.mu.Unlock()
		return ipc.Broken("device", "UNLEND of allocation %d, which is not lent, or has tickets out", f.ID)
	}
	delete(l.all, f.ID)
	l.mu.Unlock()
	memory.Release()
	return nil
}

// Borrow checks a descriptor of the stub and returns the memory that it names.
func (l *Lent) Borrow(number uint32, ticket shm.Ticket, offset, n uint64) (*Memory, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	allocation := l.all[uint64(number)]
	if allocation == nil {
		return nil, ipc.Broken("descriptor", "allocation %d of a device is not lent", number)
	}
	if !allocation.Has(offset, n) {
		return nil, ipc.Broken("descriptor", "range [%d, +%d) lies outside the %d bytes of allocation %d", offset, n, allocation.Size, number)
	}
	extent, err := l.arena.LendElsewhere(ticket)
	if err != nil {
		return nil, ipc.Broken("descriptor", "%v", err)
	}
	allocation.Retain()
	return &Memory{allocation: allocation, maker: l, number: number, offset: offset, n: n, extent: extent}, nil
}

// Bytes returns the size of all lent allocations.
func (l *Lent) Bytes() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, memory := range l.all {
		n += memory.Size
	}
	return n
}

// Close releases all allocations, because the life has ended. It may be called again.
func (l *Lent) Close() {
	l.mu.Lock()
	all := l.all
	l.all, l.closed = nil, true
	l.mu.Unlock()
	for _, memory := range all { // Release sends frames
		memory.Release()
	}
}
