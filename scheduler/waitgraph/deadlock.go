package waitgraph

import (
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Patience is how long nothing may change among requests that probably wait for each other before
// one of them is rejected. Other searches for a standstill wait as long.
const Patience = 5 * time.Second

// Check rejects a queued BLS request that can never be executed: every instance of its model
// executes something that waits, directly or indirectly, for this request. The others can then
// continue.
//
// A deadlock is certain if all its executions have not returned. After its execution a model may
// continue in the background; it then holds no instance and need not wait for its calls, although
// most models do. Such a probable deadlock is rejected, by a response, if nothing in it has changed
// for the graph's patience.
func (g *Graph) Check(q *BLSRequest) error {
	if g.hopeful(q.by.Instances()) {
		return nil
	}
	g.searching.Lock()
	defer g.searching.Unlock()
	found := g.find(q, false)
	if found == nil {
		if g.patience == 0 {
			return nil
		}
		if suspected := g.find(q, true); suspected != nil {
			g.suspect(q, suspected)
		}
		return nil
	}
	if !q.by.TakeBack() {
		return nil
	}
	g.Leave(q)
	q.by.Out()
	return found.refusal(q)
}

// suspect examines a probable deadlock again later.
func (g *Graph) suspect(q *BLSRequest, suspected *search) {
	panics.AfterFunc(g.log, panics.Scheduler, g.patience, func() { g.look(q, suspected)() }, nil)
}

// look rejects a BLS request if nothing in a probable deadlock has changed. The result answers it
// and is called with nothing locked.
func (g *Graph) look(q *BLSRequest, suspected *search) (answer func()) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if suspected.holds() {
		return g.take(suspected, q)
	}
	if suspected = g.find(q, true); suspected != nil {
		g.suspect(q, suspected)
	}
	return func() {}
}

// Recheck examines queued BLS requests after an instance has become hopeless.
func (g *Graph) Recheck(waiting []*BLSRequest) {
	for _, q := range waiting {
		g.certain(q)()
	}
}

// certain rejects a BLS request that can never be executed. The result answers it and is called
// with nothing locked.
func (g *Graph) certain(q *BLSRequest) (answer func()) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if found := g.find(q, false); found != nil {
		return g.take(found, q)
	}
	return func() {}
}

// take removes a BLS request from its queue. The result answers it and is called with nothing
// locked.
func (g *Graph) take(found *search, q *BLSRequest) (answer func()) {
	if !q.by.TakeBack() {
		return func() {}
	}
	g.Leave(q)
	return func() { q.by.Refuse(found.refusal(q)) }
}

// refusal returns the error of a rejected BLS request.
func (s *search) refusal(q *BLSRequest) *infer.Error {
	names := s.cycle(q)
	return infer.Errorf(infer.Unavailable, "Model '%s' cannot be called: every instance of it waits for this call (%s)",
		names[0], strings.Join(names, " → ")) // bound: the instances
}

// cycle returns the names of the models on a shortest path from the instances that a BLS request
// waits for back to the request.
func (s *search) cycle(q *BLSRequest) []string {
	type step struct {
		run    *run
		before *step
	}
	var steps []*step
	seen := make(map[*run]bool)
	add := func(r *run, before *step) {
		if !seen[r] && !r.hopeful {
			seen[r] = true
			steps = append(steps, &step{r, before})
		}
	}
	for _, r := range s.root.runs {
		add(r, nil)
	}
	names := []string{q.by.Model()}
	for i := 0; i < len(steps); i++ { // grows meanwhile
		for _, w := range steps[i].run.waits {
			if w.request == q {
				for at := steps[i]; at != nil; at = at.before {
					names = slices.Insert(names, 0, at.run.Batch.Model()) // bound: the instances
				}
				return names
			}
			if w.in != nil {
				add(w.in, steps[i])
			}
			if w.at != nil {
				for _, r := range w.at.runs {
					add(r, steps[i])
				}
			}
		}
	}
	return names
}
