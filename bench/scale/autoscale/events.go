package main

import "container/heap"

// event is something that happens at a time, in seconds from the beginning.
type event struct {
	at    float64
	order int // of events at one time: as they were made
	do    func()
}

// events are those to come, the next one first.
type events []event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// clock runs events in the order of their times.
type clock struct {
	now     float64
	made    int
	pending events
}

func (c *clock) at(t float64, do func()) {
	c.made++
	heap.Push(&c.pending, event{max(t, c.now), c.made, do})
}

func (c *clock) after(d float64, do func()) { c.at(c.now+d, do) }

// every does something from a time on, again and again.
func (c *clock) every(first, period float64, do func()) {
	c.at(first, func() {
		do()
		c.every(c.now+period, period, do)
	})
}

// run runs events up to a time.
func (c *clock) run(until float64) {
	for len(c.pending) > 0 && c.pending[0].at <= until {
		next := heap.Pop(&c.pending).(event)
		c.now = next.at
		next.do()
	}
	c.now = until
}
