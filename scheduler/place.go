package scheduler

import "slices"

// place is where a request was, or a batch, and its counts, which tell whether
// it has moved.
type place struct {
	batch running // that it is in, or was in last; nil if there was none
	where whereabouts
	turns uint32 // executions begun
	sent  uint32 // responses, of calls
}

type whereabouts uint8

const (
	elsewhere whereabouts = 0 // on its way, or done with its instance
	queued    whereabouts = 1
	executed  whereabouts = 2
	over      whereabouts = 3 // or about to be: its client has gone
)

// hopeful reports at a glance whether an instance will be free: most are.
func (g *Graph) hopeful(at station) bool {
	places, _, free := at.Look()
	return free || slices.ContainsFunc(places, func(p place) bool { return !g.waits(p.batch, true) })
}
