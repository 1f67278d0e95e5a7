package connections

import (
	"cmp"
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nereid-serving/nereid/budget"
)

const (
	// busyApart is how long no eviction is tried after all connections were busy,
	// and evictTries how many may become busy at the very moment.
	busyApart  = 5 * time.Millisecond
	evictTries = 16
)

// Set has the connections of one front end.
type Set struct {
	budget  *Budget
	settle  time.Duration // the budget's
	limit   int
	account *budget.Account // nil: nothing is charged
	cost    int64           // what each takes of it

	mu        sync.Mutex
	heap      memberHeap
	busyUntil int64 // until then nothing is looked for, as all were busy
}

// NewSet returns the set of another front end: at most limit connections, each of
// which takes cost bytes of the account. Without a budget the set has one of its own,
// without an account nothing is charged.
func NewSet(b *Budget, limit int, account *budget.Account, cost int64) *Set {
	if b == nil {
		b = &Budget{}
	}
	s := &Set{budget: b, settle: cmp.Or(b.Settle, settleByDefault), limit: limit, account: account, cost: cost}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sets = append(b.sets, s)
	return s
}

// Member is a connection as its Set sees it. It is a field of the connection, which
// sets Close before it enters.
type Member struct {
	// Close closes the connection and returns true, unless it is busy. It is called
	// with the Set locked: it calls nothing of the Set.
	Close func() bool
	// Holder has what the connection and its requests take. Name and End are set before Enter.
	Holder budget.Holder

	idle  atomic.Int64 // since when it is idle, in ns, or from when on; busy: 0
	since int64        // idle, as the heap has it
	index int          // in the heap; -1: it is not there

	settle time.Duration // its Set's, from Enter on
}

// Busy says that the connection serves a request. It comes with every request, hence no
// lock: a goroutine that evicts may still see the connection idle, and asks Close.
func (m *Member) Busy() { m.idle.Store(0) }

// Replied says that the connection has had its last reply: it becomes idle once
// Budget.Settle has passed. It is called after Enter only.
func (m *Member) Replied() { m.idle.Store(time.Now().Add(m.settle).UnixNano()) }

// Enter lets a connection in, which is idle at first, if need be in the place of
// another one. False: all are busy.
func (s *Set) Enter(m *Member) bool {
	// One connection enters at a time, of all front ends: otherwise two could both count on
	// the last descriptor.
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
	// Charged last, when nothing else can refuse it. An eviction in another Set may free
	// nothing that this one is charged for, hence the loop.
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
	heap.Push(&s.heap, m)
	return true
}

// Leave is said of each connection that has entered, when it ends.
func (s *Set) Leave(m *Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.index >= 0 { // else it was evicted, which has given back what it was charged
		s.removeLocked(m)
	}
}

func (s *Set) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heap)
}

// longest returns since when the connection is idle that is so for longest,
// math.MaxInt64 if all are busy.
func (s *Set) longest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.idlestLocked(); m != nil {
		return m.since
	}
	return math.MaxInt64
}

// idlestLocked returns the connection that has been idle for longest, nil if all
// are busy. Connections become busy and idle without a word to the heap: what it
// has of each is a time since when it cannot have been idle for longer, and the
// first ones are brought up to date until one is right.
func (s *Set) idlestLocked() *Member {
	now := time.Now().UnixNano()
	if now < s.busyUntil {
		return nil
	}
	for len(s.heap) > 0 {
		m := s.heap[0]
		switch since := m.idle.Load(); {
		case since == m.since && since <= now:
			return m
		case since != 0 && since != m.since:
			m.since = since
		case since == 0 && m.since < now:
			m.since = now
		default: // and no other one is older
			s.busyUntil = now + int64(busyApart)
			return nil
		}
		heap.Fix(&s.heap, 0)
	}
	return nil
}

// evict closes the connection that has been idle for longest; false if there is
// none.
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
		heap.Fix(&s.heap, 0)
	}
	return false
}

func (s *Set) removeLocked(m *Member) {
	heap.Remove(&s.heap, m.index)
	if s.account != nil {
		s.account.Give(budget.Connections, s.cost)
		m.Holder.Drop(budget.Connections, s.cost)
		m.Holder.Leave()
	}
}

// memberHeap is a heap.Interface with the one in front that is idle for longest.
type memberHeap []*Member

func (h memberHeap) Len() int           { return len(h) }
func (h memberHeap) Less(i, j int) bool { return h[i].since < h[j].since }

func (h memberHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *memberHeap) Push(x any) {
	m := x.(*Member) //nolint:forcetypeassert // Enter pushes nothing else
	m.index = len(*h)
	*h = append(*h, m)
}

// Pop implements heap.Interface.
func (h *memberHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	m.index = -1
	return m
}
