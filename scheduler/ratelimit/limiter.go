package ratelimit

import (
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/heap"
)

// Limiter is the rate limiter of a server, shared by all versions of all models.
type Limiter struct {
	explicit []Resource

	log zerolog.Logger

	mu       sync.Mutex
	shares   map[*Share]struct{}
	capacity map[resource]int64
	taken    map[resource]int64
	staged   heap.Heap[*instance]         // in the order of their turns
	stagings uint64                       // number of stagings so far
	holders  map[*infer.Request]*instance // instances that hold resources, by executing request
}

// New returns a limiter. Without explicit resources, the capacity of each resource is the largest
// need of any instance.
func New(explicit []Resource) *Limiter {
	return &Limiter{
		explicit: explicit, shares: make(map[*Share]struct{}), capacity: make(map[resource]int64),
		taken: make(map[resource]int64), holders: make(map[*infer.Request]*instance),
		staged: heap.New((*instance).before, func(in *instance) *int { return &in.index }),
	}
}

// Usage describes the load of a Limiter.
type Usage struct {
	Staged  int // instances waiting for their turn
	Taken   int // resources in use
	Holders int // executing requests that hold resources
}

// Usage returns the current load.
func (l *Limiter) Usage() Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Usage{l.staged.Len(), len(l.taken), len(l.holders)}
}

// LogTo sets the logger. A nil Limiter ignores it.
func (l *Limiter) LogTo(log zerolog.Logger) {
	if l != nil {
		l.log = log
	}
}

// Events returns the wrapper between the instances of a version and their scheduler.
func (l *Limiter) Events(next backend.Events) *Events {
	return &Events{limiter: l, next: next, instances: make(map[backend.Instance]*instance)}
}

// stageLocked stages an instance.
func (l *Limiter) stageLocked(in *instance) {
	in.nested = l.heldForLocked(in, nil) > 0
	l.stagings++
	in.staging = l.stagings
	l.staged.Push(in)
}

// allocate executes the instances whose turn has come.
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

// next starts the turn of the next instance, or returns nil if its resources are not free. A
// returned applicant chooses the batch.
func (l *Limiter) next() (*instance, backend.Applicant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.staged.First()
	if in == nil || !l.fitsLocked(in) {
		return nil, nil
	}
	l.staged.Remove(in)
	l.takeLocked(in)
	if in.by == nil {
		l.holdLocked(in)
	}
	return in, in.by
}

// takeLocked takes the resources of an instance.
func (l *Limiter) takeLocked(in *instance) {
	in.running.Store(true)
	for _, n := range in.needs {
		l.taken[n.resource] += n.count // bound: the resources in configs
	}
}

// holdLocked records the requests for which an instance holds resources.
func (l *Limiter) holdLocked(in *instance) {
	if len(in.needs) > 0 {
		for _, task := range in.batch.Tasks {
			l.holders[task.Request] = in // bound: the batches of instances
		}
	}
}

func (l *Limiter) releaseLocked(in *instance) {
	in.running.Store(false)
	for _, n := range in.needs {
		if l.taken[n.resource] -= n.count; l.taken[n.resource] == 0 { // bound: the resources in configs
			delete(l.taken, n.resource)
		}
	}
	if len(in.needs) > 0 && in.batch != nil {
		for _, task := range in.batch.Tasks {
			delete(l.holders, task.Request)
		}
	}
}

// fitsLocked reports whether the resources of an instance are free.
func (l *Limiter) fitsLocked(in *instance) bool {
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

// heldForLocked returns how much of a resource (nil: of all) the callers of the requests hold that
// wait for the turn of an instance.
func (l *Limiter) heldForLocked(in *instance, of *resource) int64 {
	if len(l.holders) == 0 {
		return 0
	}
	held := int64(0)
	seen := make(map[*infer.Request]bool)
	counted := make(map[*instance]bool)
	var look func(r *infer.Request)
	look = func(r *infer.Request) {
		if r.Caller == nil {
			return
		}
		for _, outer := range r.Caller.Requests {
			if seen[outer] {
				continue
			}
			seen[outer] = true // bound: requests, which are charged
			if by := l.holders[outer]; by != nil && !counted[by] {
				counted[by] = true // bound: the instances
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

// before reports whether an instance has its turn before another one.
func (in *instance) before(other *instance) bool {
	if in.nested != other.nested {
		return in.nested
	}
	if x, y := in.score(), other.score(); x != y {
		return x < y
	}
	return in.staging < other.staging
}

// score orders instances, the lowest first: executions including the next one, times priority.
// Without the next one, an instance that has executed nothing would be first even with a low
// priority.
func (in *instance) score() uint64 { return (in.executions + 1) * in.priority }
