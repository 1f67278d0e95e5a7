package ensemble

import (
	"sync"
	"time"

	"github.com/nereid-serving/nereid/scheduler"
)

// patienceTurn is how long a step waits for its turn at most.
const patienceTurn = 300 * time.Second

// inflightLimiter limits the requests in flight of one step, over all requests of an ensemble. Its
// mu is locked after a flow's.
type inflightLimiter struct {
	limit int // 0: none

	mu       sync.Mutex
	used     int
	waiting  scheduler.List[*stepRun]
	granting bool // a goroutine grants turns
}

// enter reports whether a step may proceed now; otherwise granted is called later.
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

// withdraw removes a waiting step and reports whether it was waiting.
func (l *inflightLimiter) withdraw(run *stepRun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !run.queued {
		return false
	}
	l.removeLocked(run)
	return true
}

// free ends a step's turn and starts that of the step that has waited longest. A loop, instead of
// recursion, handles steps that end at once.
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
