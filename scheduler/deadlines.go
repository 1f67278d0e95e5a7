package scheduler

import "container/heap"

// deadlines are waiting requests, a heap whose top has the nearest deadline.
type deadlines []*request

// next is the nearest deadline, 0 if there is none.
func (d deadlines) next() int64 {
	if len(d) == 0 {
		return 0
	}
	return d[0].deadline
}

func (d *deadlines) add(r *request)    { heap.Push(d, r) }
func (d *deadlines) remove(r *request) { heap.Remove(d, r.alarm-1) }

// Len implements heap.Interface, as the four below do.
func (d deadlines) Len() int { return len(d) }

// Less has the nearest first.
func (d deadlines) Less(i, j int) bool { return d[i].deadline < d[j].deadline }

// Swap keeps each request's place with it.
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].alarm, d[j].alarm = i+1, j+1
}

// Push adds a *request.
func (d *deadlines) Push(x any) {
	r, _ := x.(*request)
	*d = append(*d, r)
	r.alarm = len(*d)
}

// Pop removes the last.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	r.alarm = 0
	return r
}
