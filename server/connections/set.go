package connections

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/heap"
)

const (
	// busyApart is how long no eviction is tried after all connections were busy. evictTries bounds
	// the retries for connections that become busy at the same moment.
	busyApart  = 5 * time.Millisecond
	evictTries = 16
)

// Set has the connections of one front end.
type Set struct {
	budget  *Budget
	settle  time.Duration // the budget's
	limit   int
	account *budget.Account // nil: nothing is charged
	cost    int64           // of each connection

	mu        sync.Mutex
	heap      heap.Heap[*Member] // the connection that has been idle for longest comes first
	busyUntil int64              // until then no eviction is tried, since all were busy
}

// NewSet returns the set of another front end: at most limit connections, each of which is charged
// cost bytes. Without a budget the set has its own; without an account nothing is charged.
func NewSet(b *Budget, limit int, account *budget.Account, cost int64) *Set {
	if b == nil {
		b = &Budget{}
	}
	s := &Set{budget: b, settle: cmp.Or(b.Settle, settleByDefault), limit: limit, account: account, cost: cost}
	s.heap = heap.New(func(a, b *Member) bool { return a.since < b.since }, func(m *Member) *int { return &m.heapIndex })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sets = append(b.sets, s) // bound: the front ends
	return s
}

// Member is a connection in a Set. It is a field of the connection, which sets Close before it
// enters.
type Member struct {
	// Close closes the connection and returns true, unless it is busy. It is called with the Set
	// locked and must not call the Set.
	Close func() bool
	// Holder holds the charges of the connection and its requests. Name and End are set before
	// Enter.
	Holder budget.Holder

	idle      atomic.Int64 // when it became idle or will be, in ns; busy: 0
	since     int64        // the time of idle that the heap knows
	heapIndex int          // in the heap

	settle time.Duration // its Set's, from Enter on
}

// Busy marks the connection as serving a request. It is called for every request and so has no
// lock: a goroutine that evicts may still see the connection idle, and asks Close.
func (m *Member) Busy() { m.idle.Store(0) }

// Replied marks the end of a reply: the connection becomes idle after Budget.Settle. It is called
// only after Enter.
func (m *Member) Replied() { m.idle.Store(time.Now().Add(m.settle).UnixNano()) }

// Enter adds a connection, which is idle at first, and evicts another one if necessary. It returns
// false if all are busy.
func (s *Set) Enter(m *Member) bool {
	// One connection of all front ends enters at a time: otherwise two could both count on the last
	// descriptor.
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.count() >= s.limit && !s.evict() {
		return false
	}
	n := b.countLocked()
	most := b.mostLocked(n)
	if n+b.keptLocked(s, most) >= most && !b.evictLocked(s, most) {
		return false
	}
	// The charge comes last, when nothing else can reject the connection. An eviction in another
	// Set may free nothing of this one's kind, hence the loop.
	for s.account != nil && !s.account.Try(budget.Connections, s.cost) {
		if s.count() < b.ownLocked(s, most) {
			s.account.Must(budget.Connections, s.cost)
			break
		}
		if !b.evictLocked(s, most) {
			return false
		}
	}
	if s.account != nil {
		s.account.Enter(&m.Holder)
		_ = m.Holder.Hold(budget.Connections, s.cost) // which has no bound of its own
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.settle = s.settle
	m.since = time.Now().UnixNano()
	m.idle.Store(m.since)
	s.heap.Push(m)
	return true
}

// Leave removes a connection that has entered. It is called once for each, at its end.
func (s *Set) Leave(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heap.Has(m) { // otherwise its eviction has returned the charge
		s.removeLocked(m)
	}
}

func (s *Set) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heap.Len()
}

// longest returns since when the idlest connection is idle, or math.MaxInt64 if all are busy.
func (s *Set) longest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.idlestLocked(); m != nil {
		return m.since
	}
	return math.MaxInt64
}

// idlestLocked returns the connection that has been idle for longest, or nil if all are busy.
// Connections become busy and idle without telling the heap. The heap has a lower bound of the idle
// time of each and updates its first entries until the first one is exact.
func (s *Set) idlestLocked() *Member {
	now := time.Now().UnixNano()
	if now < s.busyUntil {
		return nil
	}
	for m := s.heap.First(); m != nil; m = s.heap.First() {
		switch since := m.idle.Load(); {
		case since == m.since && since <= now:
			return m
		case since != 0 && since != m.since:
			m.since = since
		case since == 0 && m.since < now:
			m.since = now
		default: // and no other is older
			s.busyUntil = now + int64(busyApart)
			return nil
		}
		s.heap.Fix(m)
	}
	return nil
}

// evict closes the connection that has been idle for longest. It returns false if all are busy.
func (s *Set) evict() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range evictTries {
		m := s.idlestLocked()
		if m == nil {
			return false
		}
		if m.Close() {
			s.removeLocked(m)
			return true
		}
		m.since = time.Now().UnixNano() // it becomes busy
		s.heap.Fix(m)
	}
	return false
}

func (s *Set) removeLocked(m *Member) {
	s.heap.Remove(m)
	if s.account != nil {
		s.account.Give(budget.Connections, s.cost)
		m.Holder.Drop(budget.Connections, s.cost)
		m.Holder.Leave()
	}
}
