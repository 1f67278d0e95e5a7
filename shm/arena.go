package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/shm/foreign"
)

// Arena is the part of an up region in which a stub keeps the bytes of its responses. The stub
// allocates there by itself; this side checks bounds, counts outstanding extents and returns
// tickets.
type Arena struct {
	region *Region
	max    uint64 // bytes that a stub may use
	put    func(Ticket)

	// Lend runs with the channel's receive lock, Release in any goroutine that has written a
	// response, so both counters are atomic.
	outstanding atomic.Int32
	lent        atomic.Int64 // bytes of outstanding extents; overlapping ones count each time

	// mu makes put the only producer of the return ring, and keeps Close from coming between the
	// check of closed and put.
	mu     sync.Mutex
	closed bool
}

// NewArena creates the Arena of an up region and takes over the reference. put tells the stub that
// a ticket is free again; it is not called after Close.
func NewArena(region *Region, maxBytes int64, put func(Ticket)) *Arena {
	return &Arena{region: region, max: uint64(max(maxBytes, 0)), put: put}
}

// Extent is a range of the arena that a response refers to. It implements
// infer.Memory.
type Extent struct {
	foreign.References

	arena  *Arena
	ticket Ticket
	n      int64
}

// arenaUnchecked is the size up to which a range is lent without asking the kernel for the
// allocated size of the file.
const arenaUnchecked = 1 << 20

// Lend checks a descriptor of the stub and returns its bytes. The Extent owns them and keeps the
// region mapped even when the stub has died.
func (a *Arena) Lend(t Ticket, offset, n uint64) (*Extent, []byte, error) {
	if offset < ArenaOffset {
		return nil, nil, fmt.Errorf("offset %d lies before the arena, which begins at %d", offset, ArenaOffset)
	}
	b, err := a.region.Bytes(offset, n)
	if err != nil {
		return nil, nil, err
	}
	if n > a.max {
		return nil, nil, fmt.Errorf("range [%d, +%d) has more than the %d bytes that a stub may use", offset, n, a.max)
	}
	// Reading a hole would allocate it. A stub may allocate as many bytes as its limit at the start
	// of the arena. It may use bytes beyond them if it has left holes before, but it must have
	// written them.
	if reach := offset - ArenaOffset + n; reach > a.max {
		if hole, err := a.region.hole(offset, n); err != nil || hole {
			return nil, nil, fmt.Errorf("range [%d, +%d) lies beyond the %d bytes that a stub may use and was not written", offset, n, a.max)
		}
	}
	// No response has more bytes than the stub has reserved.
	if n > arenaUnchecked {
		if reserved, err := a.region.Reserved(); err != nil || n > uint64(reserved) {
			return nil, nil, fmt.Errorf("range [%d, +%d) has more bytes than the %d that are reserved", offset, n, reserved)
		}
	}
	e, err := a.LendElsewhere(t)
	if err != nil {
		return nil, nil, err
	}
	e.n = int64(n)
	a.lent.Add(e.n)
	return e, b, nil
}

// LendElsewhere is Lend for memory of the stub outside of the arena: the extent has no bytes, and
// its release returns the ticket.
func (a *Arena) LendElsewhere(t Ticket) (*Extent, error) {
	// Counted first and compared after, because extents are released meanwhile: two callers cannot
	// both take the last slot of the return ring.
	if count := a.outstanding.Add(1); count > ReturnRingSlots {
		a.outstanding.Add(-1)
		return nil, fmt.Errorf("%d blocks are outstanding, at most %d may be", count, ReturnRingSlots)
	}
	// The bytes stay mapped until the response has been written, even when the stub has died and
	// its channel is closed.
	a.region.Retain()
	return &Extent{arena: a, ticket: t}, nil
}

// Sealed reports whether the bytes may be passed to goroutines that do not guard against faults.
func (a *Arena) Sealed() bool { return a.region.Sealed() }

// Outstanding returns the number of extents that have not been released.
func (a *Arena) Outstanding() int { return int(a.outstanding.Load()) }

// Load returns the outstanding part of the descriptors or bytes that the stub can lend, whichever
// is larger: 1 is all.
func (a *Arena) Load() float64 {
	load := float64(a.outstanding.Load()) / ReturnRingSlots
	if a.max > 0 {
		load = max(load, float64(a.lent.Load())/float64(a.max))
	}
	return load
}

// Close ends the life of the stub: released extents are no longer reported.
// The region stays mapped until the last of them is released.
func (a *Arena) Close() {
	a.mu.Lock()
	closed := a.closed
	a.closed = true
	a.mu.Unlock()
	if !closed {
		a.region.Release()
	}
}

// Release drops a reference; after the last one the stub may reuse the bytes.
func (e *Extent) Release() {
	if !e.Drop() {
		return
	}
	a := e.arena
	a.mu.Lock()
	// put writes to the return ring, which is unmapped with the life: hence inside the lock, and
	// only during the life.
	if !a.closed {
		a.put(e.ticket)
	}
	// Decremented after put: Lend counts a ticket until it is in the ring.
	a.outstanding.Add(-1)
	a.lent.Add(-e.n)
	a.mu.Unlock()
	// Outside the lock: the last reference unmaps the region and calls the function of OnGone.
	a.region.Release()
}
