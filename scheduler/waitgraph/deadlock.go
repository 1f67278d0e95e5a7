package waitgraph

import (
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/boundary"
	"github.com/nereid-serving/nereid/infer"
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
func (g *Graph) Check(c *Call) error {
	if g.hopeful(c.by.Station()) {
		return nil
	}
	g.searching.Lock()
	defer g.searching.Unlock()
	found := g.find(c, false)
	if found == nil {
		if g.patience == 0 {
			return nil
		}
		if suspected := g.find(c, true); suspected != nil {
			g.suspect(c, suspected)
		}
		return nil
	}
	if !c.by.TakeBack() {
		return nil
	}
	g.Leave(c)
	c.by.Out()
	return found.refusal(c)
}

// Suspects reports whether a queued call would never be executed if all that goes on
// in the background waited for its calls.
func (g *Graph) Suspects(c *Call) bool {
	g.searching.Lock()
	defer g.searching.Unlock()
	return g.find(c, true) != nil
}

// suspect has a likely deadlock looked at again later.
func (g *Graph) suspect(c *Call, suspected *search) {
	boundary.AfterFunc(g.log, boundary.Scheduler, g.patience, func() { g.look(c, suspected)() }, nil)
}

// look takes a call out of its queue if nothing of a likely deadlock has moved, and
// returns what answers it, with nothing locked.
func (g *Graph) look(c *Call, suspected *search) (answer func()) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if suspected.holds() {
		return g.take(suspected, c)
	}
	if suspected = g.find(c, true); suspected != nil {
		g.suspect(c, suspected)
	}
	return func() {}
}

// Recheck looks at calls that wait where an instance has been lost for good.
func (g *Graph) Recheck(calls []*Call) {
	for _, c := range calls {
		g.certain(c)()
	}
}

// certain takes a call out of its queue that can never be executed, and returns what
// answers it, with nothing locked.
func (g *Graph) certain(c *Call) (answer func()) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if found := g.find(c, false); found != nil {
		return g.take(found, c)
	}
	return func() {}
}

// take takes a call from its queue and returns what answers it, with nothing
// locked.
func (g *Graph) take(found *search, c *Call) (answer func()) {
	if !c.by.TakeBack() {
		return func() {}
	}
	g.Leave(c)
	return func() { c.by.Refuse(found.refusal(c)) }
}

// refusal is what the caller of a refused call gets.
func (s *search) refusal(c *Call) *infer.Error {
	names := s.cycle(c)
	return infer.Errorf(infer.Unavailable, "Model '%s' cannot be called: every instance of it waits for this call (%s)",
		names[0], strings.Join(names, " → "))
}

// cycle names the models on a shortest way from the instances that the call
// waits for to itself.
func (s *search) cycle(c *Call) []string {
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
	names := []string{c.by.Model()}
	for i := 0; i < len(steps); i++ { // grows meanwhile
		for _, w := range steps[i].run.waits {
			if w.call == c {
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
