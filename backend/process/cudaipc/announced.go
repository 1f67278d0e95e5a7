package cudaipc

import (
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm/foreign"
)

// Announced tracks the allocations of others that the stub of one life knows.
type Announced struct {
	own  *Lent // the stub's own allocations
	send func(kind ipc.Kind, id uint64, body []byte) error
	log  zerolog.Logger

	mu     sync.Mutex
	closed bool
	last   uint32
	known  map[*foreign.Device]*announcement // bound: the allocations that are lent
}

type announcement struct {
	number uint32
	forget func() // cancels the call of ended
}

// NewAnnounced creates the table of a stub that knows no allocations. send writes a frame to its
// ring.
func NewAnnounced(own *Lent, send func(kind ipc.Kind, id uint64, body []byte) error, log zerolog.Logger) *Announced {
	return &Announced{own: own, send: send, log: log, known: make(map[*foreign.Device]*announcement)}
}

// Name returns the region and number by which the stub knows m's allocation. It announces a new
// allocation first. The caller holds the encoder's lock and a reference to m.
func (a *Announced) Name(m *Memory) (region, number uint32, err error) {
	if m.maker == a.own {
		return ipc.InOwnDevice, m.number, nil // a process cannot open its own memory
	}
	number, err = a.Announce(m.allocation)
	return ipc.InDevice, number, err
}

// Announce returns the number by which the stub knows another's allocation. It announces a new one
// first. The caller holds the encoder's lock and a reference.
func (a *Announced) Announce(allocation *foreign.Device) (number uint32, err error) {
	a.mu.Lock()
	known := a.known[allocation]
	a.mu.Unlock()
	if known != nil {
		return known.number, nil
	}
	if a.last == ipc.MaxAllocation {
		return 0, fmt.Errorf("%d allocations of devices have been announced", a.last)
	}
	var body [ipc.AllocationSize]byte
	ipc.PutAllocation(body[:], allocation)
	if err := a.send(ipc.Allocation, uint64(a.last+1), body[:]); err != nil {
		return 0, err
	}
	a.last++
	known = &announcement{number: a.last}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, ipc.ErrClosed
	}
	a.known[allocation] = known
	// The caller's reference prevents the end before this line.
	known.forget = allocation.OnEnd(func() { a.ended(allocation, known.number) })
	return known.number, nil
}

// Number returns the number by which the stub knows another's allocation; false if it was not
// announced, or has ended.
func (a *Announced) Number(allocation *foreign.Device) (number uint32, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.known[allocation]
	if known == nil {
		return 0, false
	}
	return known.number, true
}

// ended tells the stub that an allocation has ended.
func (a *Announced) ended(allocation *foreign.Device, number uint32) {
	a.mu.Lock()
	closed := a.closed
	delete(a.known, allocation)
	a.mu.Unlock()
	if closed {
		return
	}
	if err := a.send(ipc.Freed, uint64(number), nil); err != nil {
		a.log.Debug().Err(err).Msg("stub was not notified of freed device memory")
	}
}

// Count returns the number of allocations that the stub knows.
func (a *Announced) Count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.known)
}

// Close forgets all allocations, because the life has ended. It may be called again.
func (a *Announced) Close() {
	a.mu.Lock()
	a.closed = true
	var forget []func() // bound: known
	for _, known := range a.known {
		if known.forget != nil {
			forget = append(forget, known.forget)
		}
	}
	clear(a.known)
	a.mu.Unlock()
	for _, f := range forget {
		f()
	}
}
