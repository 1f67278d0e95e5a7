package waitgraph

import (
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/panics"
)

// Patience is how long nothing may happen between requests that seem to wait
// for each other before one of them is refused, where that is likely and not
// certain. Whatever else looks for a standstill waits as long.
const Patience = 5 * time.Second

// Check refuses a request that a model has made and that is queued, if it can
// never be executed: every instance of its model executes something that waits,
// directly or not, for this very request. The others go on then.
//
// Certain is what an execution waits for that has not returned. A model that
// went on in the background, after its execution had returned, holds no
// instance, and need not wait for what it calls; most do, though. What is
// a deadlock on that assumption is refused when nothing of it has moved for the
// graph's patience, in a response.
func (g *Graph) Check(q *BLSRequest) error {
	if g.hopeful(q.by.Station()) {
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

// Suspects reports whether a queued BLS request would never be executed if all that
// goes on in the background waited for its own BLS requests.
func (g *Graph) Suspects(q *BLSRequest) bool {
	g.searching.Lock()
	defer g.searching.Unlock()
	return g.find(q, true) != nil
}

// suspect has a likely deadlock looked at again later.
func (g *Graph) suspect(q *BLSRequest, suspected *search) {
	panics.AfterFunc(g.log, panics.Scheduler, g.patience, func() { g.look(q, suspected)() }, nil)
}

// look takes a BLS request out of its queue if nothing of a likely deadlock has moved, and
// returns what answers it, with nothing locked.
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

// Recheck looks at BLS requests that wait where an instance has been lost for good.
func (g *Graph) Recheck(waiting []*BLSRequest) {
	for _, q := range waiting {
		g.certain(q)()
	}
}

// certain takes a BLS request out of its queue that can never be executed, and returns what
// answers it, with nothing locked.
func (g *Graph) certain(q *BLSRequest) (answer func()) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if found := g.find(q, false); found != nil {
		return g.take(found, q)
	}
	return func() {}
}

// take takes a BLS request from its queue and returns what answers it, with nothing
// locked.
func (g *Graph) take(found *search, q *BLSRequest) (answer func()) {
	if !q.by.TakeBack() {
		return func() {}
	}
	g.Leave(q)
	return func() { q.by.Refuse(found.refusal(q)) }
}

// refusal is the error of a BLS request that is refused.
func (s *search) refusal(q *BLSRequest) *infer.Error {
	names := s.cycle(q)
	return infer.Errorf(infer.Unavailable, "Model '%s' cannot be called: every instance of it waits for this call (%s)",
		names[0], strings.Join(names, " → "))
}

// cycle names the models on a shortest way from the instances that a BLS
// request waits for to itself.
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
					names = slices.Insert(names, 0, at.run.Batch.Model())
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
