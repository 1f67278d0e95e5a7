package ensemble

import (
	"sync"
	"time"

	"github.com/nereid-serving/nereid/scheduler/linked"
)

// patienceTurn is how long a step waits for its turn at most.
const patienceTurn = 300 * time.Second

// inflightLimiter bounds how many requests of one step are under way at once, over all
// requests of an ensemble. Its mu is locked after a flow's.
type inflightLimiter struct {
	limit int // 0: none

	mu       sync.Mutex
	used     int
	waiting  linked.List[*stepRun]
	granting bool // a goroutine grants turns
}

// enter reports whether a step may go ahead now; otherwise it is granted later.
func (l *inflightLimiter) enter(run *stepRun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used < l.limit && l.waiting.First == nil {
		l.used++
		return true
	}
	run.queued = true
	l.waiting.PushBack(run)
	return false
}

func (l *inflightLimiter) removeLocked(run *stepRun) {
	l.waiting.Remove(run)
	run.queued = false
}

// withdraw takes a step out that waits, and reports whether it did.
func (l *inflightLimiter) withdraw(run *stepRun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !run.queued {
		return false
	}
	l.removeLocked(run)
	return true
}

// free ends a step's turn, and begins that of the step that has waited longest.
// Those that end at once are not granted one inside the other.
func (l *inflightLimiter) free() {
	l.mu.Lock()
	l.used--
	if l.granting {
		l.mu.Unlock()
		return
	}
	l.granting = true
	for l.used < l.limit && l.waiting.First != nil {
		run := l.waiting.First
		l.removeLocked(run)
		l.used++
		l.mu.Unlock()
		run.flow.granted(run, true)
		l.mu.Lock()
	}
	l.granting = false
	l.mu.Unlock()
}
