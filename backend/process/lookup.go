package process

import (
	"math"
	"slices"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/output"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// findLocked returns the place of a batch that the stub has, -1 if it has not.
func (b *batches) findLocked(number uint64) int {
	for i := range b.count {
		if b.current[i].number == number {
			return i
		}
	}
	return -1
}

// handleLocked returns the handle of a task that the stub has, or has left open. The task's own is
// not looked at: if it was withdrawn, another instance may be writing it.
func (f *inFlight) handleLocked(task *backend.Task) (handle uint64, ok bool) {
	if s := f.open.byTask[task]; s != nil {
		return s.handle, true
	}
	for i := range f.count {
		for j, t := range f.current[i].batch.Tasks {
			if t == task {
				return f.current[i].handleOf(j), true
			}
		}
	}
	return 0, false
}

// abandonedLocked reports whether the clients of all requests of a batch that
// have not been answered yet have gone. It is given the low 32 bits of the
// batch's number.
func (f *inFlight) abandonedLocked(batch uint64) bool {
	tasks := f.openOfLocked(batch)
	for i := range f.count {
		if b := &f.current[i]; b.number&math.MaxUint32 == batch {
			for at, task := range b.batch.Tasks {
				if s := b.stream(at); s == nil || !s.ended {
					tasks = append(tasks, task)
				}
			}
		}
	}
	for _, task := range tasks {
		if task.Context.Err() == nil {
			return false
		}
	}
	return true
}

// tasksOf returns the tasks of a batch that is executed, or those that it has left open.
func (f *inFlight) tasksOf(batch uint64) (tasks []*backend.Task, executing bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if batch > f.number {
		return nil, false, ipc.Broken("handle", "INFER for batch %d, the last one is %d", batch, f.number)
	}
	if at := f.findLocked(batch); at >= 0 {
		return f.current[at].batch.Tasks, true, nil
	}
	return f.openOfLocked(batch), false, nil
}

// tracedBy returns the request whose trace the stub means by a text, nil if it has no such
// request: under a trace whose request has ended nothing is traced.
func (f *inFlight) tracedBy(text []byte) *infer.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.count {
		for _, task := range f.current[i].batch.Tasks {
			if task.Request.Trace.Is(text) {
				return task.Request
			}
		}
	}
	for task := range f.open.byTask {
		if task.Request.Trace.Is(text) {
			return task.Request
		}
	}
	return nil
}

// requestsOf lists the ids of the requests of a batch that the stub has; requests without
// an id are left out.
func (f *inFlight) requestsOf(batch uint64) []string {
	if batch == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	add := func(task *backend.Task) {
		if id := task.Request.ID; id != "" && len(ids) < maxShownRequests {
			ids = append(ids, output.CutAt(id, maxShownID))
		}
	}
	if at := f.findLocked(batch); at >= 0 {
		for _, task := range f.current[at].batch.Tasks {
			add(task)
		}
		return ids
	}
	for handle, s := range f.open.byHandle { // it was executed, and left its requests open
		if handle>>32 == batch&math.MaxUint32 {
			add(s.task)
		}
	}
	slices.Sort(ids)
	return ids
}
