package connections

import (
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Budget bounds the connections of all front ends together by the
// descriptors that the process may have. Where there is no room for another one,
// the connection that has been idle for longest is closed for it. Each front end has
// ownConnections that the others cannot take.
type Budget struct {
	// Needs returns how many descriptors are to be kept for what the process has
	// yet to open; nil: 0.
	Needs func() int
	// Settle is how long a connection counts as busy after a reply; 0: 5 s. Its next
	// request may be on its way, and its client could not tell a connection that was
	// closed meanwhile from a reply that was lost. So a flood of new connections, which
	// have asked for nothing, makes room for itself first. Set before the first NewSet.
	Settle time.Duration

	mu   sync.Mutex
	sets []*Set
	// others is how many descriptors were open besides connections when it was
	// looked at.
	others int
	looked time.Time
}

const (
	// sparedDescriptors are kept besides Needs: for loads, files of requests, logs.
	sparedDescriptors = 32
	// leastConnections are let in however few descriptors there are.
	leastConnections = 8
	// ownConnections are let in of each front end, whatever the others have: so metrics and
	// probes get through while clients flood another port.
	ownConnections = 8
	// lookApart is how long a count of the open descriptors holds.
	lookApart = 100 * time.Millisecond
	// settleByDefault is Settle if nothing else is said.
	settleByDefault = 5 * time.Second
)

// Most returns how many connections there may be now.
func (b *Budget) Most() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mostLocked(b.countLocked())
}

func (b *Budget) countLocked() (n int) {
	for _, s := range b.sets {
		n += s.count()
	}
	return n
}

func (b *Budget) mostLocked(connections int) int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	// A look costs system calls, and a flood of connections would make one for each. In
	// between descriptors may be opened: sparedDescriptors are for them too.
	if now := time.Now(); now.Sub(b.looked) > lookApart {
		b.looked, b.others = now, max(0, openDescriptors()-connections)
	}
	needs := sparedDescriptors
	if b.Needs != nil {
		needs += b.Needs()
	}
	return max(int(limit.Cur)-b.others-needs, leastConnections)
}

// openDescriptors counts the descriptors of the process.
func openDescriptors() int {
	const own = "/proc/self/fd"
	if info, err := os.Stat(own); err == nil && info.Size() > 0 { // from Linux 6.2 on
		return int(info.Size())
	}
	dir, err := os.Open(own)
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return len(names)
}

// ownLocked returns how many connections of a front end the others cannot take, of most.
func (b *Budget) ownLocked(s *Set, most int) int {
	return min(ownConnections, s.limit, most/len(b.sets))
}

// keptLocked returns how many of most connections are kept for other front ends than s.
func (b *Budget) keptLocked(s *Set, most int) (n int) {
	for _, other := range b.sets {
		if other != s {
			n += max(b.ownLocked(other, most)-other.count(), 0)
		}
	}
	return n
}

// evictLocked closes a connection to make room for one of in: that which has been idle for
// longest, of in and of the front ends that have more than their own, of most.
func (b *Budget) evictLocked(in *Set, most int) bool {
	for range evictTries {
		var idlest *Set
		longest := int64(math.MaxInt64)
		for _, s := range b.sets {
			if s != in && s.count() <= b.ownLocked(s, most) {
				continue
			}
			if since := s.longest(); since < longest {
				idlest, longest = s, since
			}
		}
		if idlest == nil {
			return false
		}
		// Between longest and evict the connection may have become busy: then that Set has
		// another idlest one, or none, and all are compared again.
		if idlest.evict() {
			return true
		}
	}
	return false
}

// relieve makes room for a connection of s where the system has no descriptor.
func (b *Budget) relieve(s *Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evictLocked(s, b.mostLocked(b.countLocked()))
}
