package connections

import (
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Budget bounds the connections of all front ends together by the descriptors that the process may
// have. To make room for a new connection it closes the connection with the longest idle time. Each
// front end has ownConnections that the others cannot take.
type Budget struct {
	// Needs returns the number of descriptors to keep for files that the process has yet to open;
	// nil: 0.
	Needs func() int
	// Settle is how long a connection counts as busy after a reply; 0: 5 s. Its next request may be
	// on its way, and its client could not distinguish a connection that was closed meanwhile from
	// a lost reply. Thus a flood of new connections without requests evicts itself first. Set
	// before the first NewSet.
	Settle time.Duration

	mu   sync.Mutex
	sets []*Set
	// others is the number of open descriptors besides connections at the last count.
	others int
	looked time.Time
}

const (
	// sparedDescriptors are kept besides Needs, for loads, files of requests, logs and connections
	// that are being rejected.
	sparedDescriptors = 80
	// leastConnections are accepted even if descriptors are short.
	leastConnections = 8
	// ownConnections of each front end are accepted whatever the others have. Thus metrics and
	// probes get through while clients flood another port.
	ownConnections = 8
	// lookApart is how long a count of the open descriptors is used.
	lookApart = 100 * time.Millisecond
	// settleByDefault is the default of Settle.
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
	// A count costs system calls, and a flood of connections would need one for each. Descriptors
	// may be opened between two counts: sparedDescriptors cover them too.
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
	if info, err := os.Stat(own); err == nil && info.Size() > 0 { // since Linux 6.2
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

// ownLocked returns how many of most connections are reserved for a front end.
func (b *Budget) ownLocked(s *Set, most int) int {
	return min(ownConnections, s.limit, most/len(b.sets))
}

// keptLocked returns how many of most connections are reserved for front ends other than s.
func (b *Budget) keptLocked(s *Set, most int) (n int) {
	for _, other := range b.sets {
		if other != s {
			n += max(b.ownLocked(other, most)-other.count(), 0)
		}
	}
	return n
}

// evictLocked closes a connection to make room for one of in. It chooses the connection with the
// longest idle time, of in and of the front ends with more than their own connections.
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
		// Between longest and evict the connection may have become busy. Then that Set has another
		// idlest connection, or no idle one, and all are compared again.
		if idlest.evict() {
			return true
		}
	}
	return false
}

// relieve makes room for a connection of s when the system has no descriptor.
func (b *Budget) relieve(s *Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evictLocked(s, b.mostLocked(b.countLocked()))
}
