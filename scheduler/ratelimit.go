package scheduler

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler/handover"
)

// Limiter is Triton's rate limiter "execution_count": instances of all models
// take turns. An instance for which a scheduler has something to do is staged until
// its turn comes and the resources that its group asks for are free. The instance
// is next that has executed least, times its priority; while the resources of that
// one are not free, all wait.
//
//	scheduler ──▶ staged, ordered by executions × priority ──▶ running, holds resources ──▶ Done
//
// A Batcher forms its batch when the turn has come, see applicant. A batch that is
// handed to Execute, by a Sequence or a warm-up, is staged as it is.
//
// A call of a model whose own execution holds resources (or that of its caller)
// would wait for itself in that order: it goes first, and what its callers hold
// counts as free for it.
//
// Limiter is used by all versions of all models. Nothing is called while its mu
// is held.
type Limiter struct {
	explicit []Resource

	log zerolog.Logger

	mu       sync.Mutex
	shares   map[*Share]struct{}
	capacity map[resource]int64
	taken    map[resource]int64
	staged   stagedHeap
	stagings uint64                      // so far
	holders  map[*infer.Request]*limited // what holds resources, by the requests that it executes
}

// NewLimiter makes a limiter. Without any explicit resource there is as much of
// each as the instance needs that needs most; else there is what they say.
func NewLimiter(explicit []Resource) *Limiter {
	return &Limiter{
		explicit: explicit, shares: make(map[*Share]struct{}), capacity: make(map[resource]int64),
		taken: make(map[resource]int64), holders: make(map[*infer.Request]*limited),
	}
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
func (l *Limiter) Events(next backend.Events) *LimitedEvents {
	return &LimitedEvents{limiter: l, next: next, instances: make(map[backend.Instance]*limited)}
}

// LimitedEvents hands instances on that wait for their turn.
type LimitedEvents struct {
	limiter *Limiter
	next    backend.Events

	mu        sync.Mutex
	instances map[backend.Instance]*limited // by what is behind all wrappers
}

// Up implements backend.Events.
func (e *LimitedEvents) Up(in backend.Instance) {
	key := backend.Innermost(in)
	e.mu.Lock()
	l := e.instances[key]
	if l == nil {
		l = &limited{inner: in, limiter: e.limiter, priority: 1, at: notStaged}
		if p, ok := key.(backend.Placed); ok {
			l.needs = needsOf(p.Group(), p.Device())
			l.priority = max(uint64(p.Group().GetRateLimiter().GetPriority()), 1)
		}
		e.instances[key] = l
	}
	e.mu.Unlock()
	e.next.Up(l)
}

// Down implements backend.Events.
func (e *LimitedEvents) Down(in backend.Instance, hopeless bool) {
	e.mu.Lock()
	l := e.instances[backend.Innermost(in)]
	e.mu.Unlock()
	if l == nil {
		return
	}
	l.giveBack(nil, backend.Report{Refused: true})
	e.next.Down(l, hopeless)
}

// Forget drops what is known of an instance that has ended.
func (e *LimitedEvents) Forget(in backend.Instance) {
	e.mu.Lock()
	delete(e.instances, backend.Innermost(in))
	e.mu.Unlock()
}

// limited is an instance that waits for its turn with each batch. It takes none
// ahead, so it is no Pipeliner.
type limited struct {
	inner    backend.Instance
	limiter  *Limiter
	needs    []need
	priority uint64
	running  atomic.Bool // changed under the limiter's mu

	// Guarded by the limiter's mu.
	executions uint64
	batch      *backend.Batch   // staged or running; nil while by waits for a turn
	by         applicant        // nil once it has had its turn
	calls      []*infer.Request // what models have asked of by
	at         int              // its place in staged
	nested     bool             // its callers hold resources
	staging    uint64           // which of all it was
}

var (
	_ backend.Canceller = (*limited)(nil)
	_ backend.Awaiter   = (*limited)(nil)
	_ backend.Wrapper   = (*limited)(nil)
)

// notStaged is the place of what has none.
const notStaged = -1

func (in *limited) Name() string              { return in.inner.Name() }
func (in *limited) Wrapped() backend.Instance { return in.inner }

// Ready asks the instance itself.
func (in *limited) Ready(ctx context.Context) error { return in.inner.Ready(ctx) }

// Await implements backend.Awaiter: a batch that is not executed yet is not
// waited for actively.
func (in *limited) Await(done <-chan struct{}) {
	if a, ok := in.inner.(backend.Awaiter); ok && in.running.Load() {
		a.Await(done)
	}
}

// Execute implements backend.Instance.
func (in *limited) Execute(b *backend.Batch) {
	l := in.limiter
	l.mu.Lock()
	if in.batch != nil { // nobody hands over two
		l.mu.Unlock()
		b.Done(b, backend.Report{Refused: true})
		return
	}
	in.batch = b
	l.stageLocked(in)
	l.mu.Unlock()
	// A panic from here on is not one of Execute: the batch may be answered already.
	boundary.Guard(l.log, boundary.Scheduler, l.allocate, nil)()
}

// stageLocked has an instance wait for its turn.
func (l *Limiter) stageLocked(in *limited) {
	in.nested = l.heldForLocked(in, nil) > 0
	l.stagings++
	in.staging = l.stagings
	heap.Push(&l.staged, in)
}

// Cancel implements backend.Canceller. A batch that waits for its turn goes back
// to the scheduler, which knows best what becomes of the rest of it.
func (in *limited) Cancel(task *backend.Task) {
	if in.giveBack(task, backend.Report{Refused: true, Withdrawn: true}) {
		return
	}
	if c, ok := in.inner.(backend.Canceller); ok {
		c.Cancel(task)
	}
}

// cancelGone tells the instance of clients that went when their batch was staged
// no more and the instance did not have it yet.
func (in *limited) cancelGone(tasks []*backend.Task) {
	c, ok := in.inner.(backend.Canceller)
	for _, task := range tasks {
		if ok && task.Context.Err() != nil {
			c.Cancel(task)
		}
	}
}

// giveBack ends the staging of the instance's batch, if it is staged and, unless
// task is nil, has that task.
func (in *limited) giveBack(task *backend.Task, report backend.Report) bool {
	l := in.limiter
	l.mu.Lock()
	if in.at == notStaged || in.batch == nil || task != nil && !contains(in.batch.Tasks, task) {
		l.mu.Unlock()
		return false
	}
	heap.Remove(&l.staged, in.at)
	b := in.batch
	in.batch = nil
	l.mu.Unlock()
	b.Done(b, report)
	l.allocate() // it may have been in the way of others
	return true
}

func contains(tasks []*backend.Task, task *backend.Task) bool {
	for _, t := range tasks {
		if t == task {
			return true
		}
	}
	return false
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
// there is enough. The applicant that it has is to say what it executes.
func (l *Limiter) next() (*limited, applicant) {
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

// execute hands over a batch whose turn has come.
func (in *limited) execute() {
	tasks := in.batch.Tasks // it is nobody else's until its Done
	// Not kept from one to the next: who executes a batch may look at it after its
	// Done.
	handover.Give(in.limiter.log, in.inner, &backend.Batch{Tasks: tasks, Trial: in.batch.Trial, Done: in.done})
	in.cancelGone(tasks)
}

// done ends the turn of an instance. What its scheduler has next for it is staged
// before others are looked at.
func (in *limited) done(_ *backend.Batch, report backend.Report) {
	l := in.limiter
	l.mu.Lock()
	l.releaseLocked(in)
	if !report.Refused {
		in.executions++
	}
	b := in.batch
	in.batch = nil
	l.mu.Unlock()
	b.Done(b, report)
	l.allocate()
}

// takeLocked gives an instance what it needs.
func (l *Limiter) takeLocked(in *limited) {
	in.running.Store(true)
	for _, n := range in.needs {
		l.taken[n.resource] += n.count
	}
}

// holdLocked notes what requests an instance holds its resources for.
func (l *Limiter) holdLocked(in *limited) {
	if len(in.needs) > 0 {
		for _, task := range in.batch.Tasks {
			l.holders[task.Request] = in
		}
	}
}

func (l *Limiter) releaseLocked(in *limited) {
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
func (l *Limiter) fitsLocked(in *limited) bool {
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
func (l *Limiter) heldForLocked(in *limited, of *resource) int64 {
	if len(l.holders) == 0 {
		return 0
	}
	held := int64(0)
	seen := make(map[*infer.Request]bool)
	counted := make(map[*limited]bool)
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
	for _, call := range in.calls {
		look(call)
	}
	if in.batch != nil {
		for _, task := range in.batch.Tasks {
			look(task.Request)
		}
	}
	return held
}

// stagedHeap is in the order in which instances take turns.
type stagedHeap []*limited

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
// is to come with them, times priority. Without the one to come, whoever has
// executed nothing would be before all others whatever its priority.
func (in *limited) score() uint64 { return (in.executions + 1) * in.priority }

func (h stagedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *stagedHeap) Push(x any) {
	in := x.(*limited)
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
