package ratelimit

import (
	"container/heap"
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// Limiter is the rate limiter of a server. It is used by all versions of all models.
type Limiter struct {
	explicit []Resource

	log zerolog.Logger

	mu       sync.Mutex
	shares   map[*Share]struct{}
	capacity map[resource]int64
	taken    map[resource]int64
	staged   stagedHeap
	stagings uint64                       // so far
	holders  map[*infer.Request]*Instance // what holds resources, by the requests that it executes
}

// New makes a limiter. Without any explicit resource there is as much of
// each as the instance needs that needs most; else there is what they say.
func New(explicit []Resource) *Limiter {
	return &Limiter{
		explicit: explicit, shares: make(map[*Share]struct{}), capacity: make(map[resource]int64),
		taken: make(map[resource]int64), holders: make(map[*infer.Request]*Instance),
	}
}

// Usage is what the instances of a Limiter wait for and hold.
type Usage struct {
	Staged  int // instances that wait for their turn
	Taken   int // resources of which some is taken
	Holders int // requests for whose execution resources are taken
}

// Usage returns what is waited for and held.
func (l *Limiter) Usage() Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Usage{len(l.staged), len(l.taken), len(l.holders)}
}

// LogTo has the limiter log what goes wrong beside a request. A nil one has nothing to
// log.
func (l *Limiter) LogTo(log zerolog.Logger) {
	if l != nil {
		l.log = log
	}
}

// Events returns what stands between the instances of a version and their
// scheduler.
func (l *Limiter) Events(next backend.Events) *Events {
	return &Events{limiter: l, next: next, instances: make(map[backend.Instance]*Instance)}
}

// stageLocked has an instance wait for its turn.
func (l *Limiter) stageLocked(in *Instance) {
	in.nested = l.heldForLocked(in, nil) > 0
	l.stagings++
	in.staging = l.stagings
	heap.Push(&l.staged, in)
}

// allocate lets those execute whose turn it is.
func (l *Limiter) allocate() {
	for {
		in, by := l.next()
		switch {
		case in == nil:
			return
		case by != nil:
			in.grant(by)
		default:
			in.execute()
		}
	}
}

// next gives its turn to the instance that is next, nil if there is none for which
// there is enough. The candidate that it has is to say what it executes.
func (l *Limiter) next() (*Instance, Applicant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.staged) == 0 || !l.fitsLocked(l.staged[0]) {
		return nil, nil
	}
	in := l.staged[0]
	heap.Pop(&l.staged)
	l.takeLocked(in)
	if in.by == nil {
		l.holdLocked(in)
	}
	return in, in.by
}

// takeLocked gives an instance what it needs.
func (l *Limiter) takeLocked(in *Instance) {
	in.running.Store(true)
	for _, n := range in.needs {
		l.taken[n.resource] += n.count
	}
}

// holdLocked notes what requests an instance holds its resources for.
func (l *Limiter) holdLocked(in *Instance) {
	if len(in.needs) > 0 {
		for _, task := range in.batch.Tasks {
			l.holders[task.Request] = in
		}
	}
}

func (l *Limiter) releaseLocked(in *Instance) {
	in.running.Store(false)
	for _, n := range in.needs {
		if l.taken[n.resource] -= n.count; l.taken[n.resource] == 0 {
			delete(l.taken, n.resource)
		}
	}
	if len(in.needs) > 0 && in.batch != nil {
		for _, task := range in.batch.Tasks {
			delete(l.holders, task.Request)
		}
	}
}

// fitsLocked reports whether what an instance needs is free.
func (l *Limiter) fitsLocked(in *Instance) bool {
	for _, n := range in.needs {
		free := l.capacity[n.resource] - l.taken[n.resource]
		if free < n.count && in.nested {
			free += l.heldForLocked(in, &n.resource)
		}
		if free < n.count {
			return false
		}
	}
	return true
}

// heldForLocked returns how much of a resource (nil: of all) the callers of what
// waits for an instance's turn hold.
func (l *Limiter) heldForLocked(in *Instance, of *resource) int64 {
	if len(l.holders) == 0 {
		return 0
	}
	held := int64(0)
	seen := make(map[*infer.Request]bool)
	counted := make(map[*Instance]bool)
	var look func(r *infer.Request)
	look = func(r *infer.Request) {
		if r.Caller == nil {
			return
		}
		for _, outer := range r.Caller.Requests {
			if seen[outer] {
				continue
			}
			seen[outer] = true
			if by := l.holders[outer]; by != nil && !counted[by] {
				counted[by] = true
				for _, n := range by.needs {
					if of == nil || n.resource == *of {
						held += n.count
					}
				}
			}
			look(outer)
		}
	}
	for _, req := range in.bls {
		look(req)
	}
	if in.batch != nil {
		for _, task := range in.batch.Tasks {
			look(task.Request)
		}
	}
	return held
}

// stagedHeap is in the order in which instances take turns.
type stagedHeap []*Instance

func (h stagedHeap) Len() int { return len(h) }

func (h stagedHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.nested != b.nested {
		return a.nested
	}
	if x, y := a.score(), b.score(); x != y {
		return x < y
	}
	return a.staging < b.staging
}

// score orders those that wait for a turn, the least first: executions, that which
// is to come with them, times priority. Without the one to come, an instance that has
// executed nothing would be before all others, also with a low priority.
func (in *Instance) score() uint64 { return (in.executions + 1) * in.priority }

func (h stagedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *stagedHeap) Push(x any) {
	in := x.(*Instance)
	in.at = len(*h)
	*h = append(*h, in)
}

// Pop implements heap.Interface.
func (h *stagedHeap) Pop() any {
	last := len(*h) - 1
	in := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	in.at = notStaged
	return in
}
