package scheduler

import (
	"slices"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/infer"
)

// patience is how long nothing may happen between requests that seem to wait
// for each other before one of them is refused, where that is likely and not
// certain.
const patience = 5 * time.Second

// check refuses a request that a model has made and that is queued, if it can
// never be executed: every instance of its model executes something that waits,
// directly or not, for this very request. The others go on then.
//
// Certain is what an execution waits for that has not returned. A model that
// went on in the background, after its execution had returned, holds no
// instance, and need not wait for what it calls; most do, though. What is
// a deadlock on that assumption is refused when nothing of it has moved for the
// graph's patience, in a response.
func (g *Graph) check(c *call) error {
	d := c.request.scheduler
	if d.hopeful() {
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
	if !d.takeBack(c.request) {
		return nil
	}
	g.leave(c)
	d.out()
	return found.refusal(c)
}

// suspect has a likely deadlock looked at again later.
func (g *Graph) suspect(c *call, suspected *search) {
	time.AfterFunc(g.patience, func() {
		g.searching.Lock()
		if suspected.holds() {
			refused := g.take(suspected, c)
			g.searching.Unlock()
			refused()
			return
		}
		if suspected = g.find(c, true); suspected != nil {
			g.suspect(c, suspected)
		}
		g.searching.Unlock()
	})
}

// recheck looks at what waits for a scheduler that has lost an instance for good.
func (g *Graph) recheck(d *Direct) {
	for _, c := range d.waitingCalls() {
		g.searching.Lock()
		refused := func() {}
		if found := g.find(c, false); found != nil {
			refused = g.take(found, c)
		}
		g.searching.Unlock()
		refused()
	}
}

// take takes a call from its queue and returns what answers it, with nothing
// locked.
func (g *Graph) take(found *search, c *call) (answer func()) {
	d := c.request.scheduler
	if !d.takeBack(c.request) {
		return func() {}
	}
	g.leave(c)
	return func() {
		d.config.Observer.Failed(Rejected, c.request.timing[0].Start)
		c.request.deliver(infer.ErrorResponse(found.refusal(c)))
	}
}

// find looks for a deadlock that a queued call is part of, nil if there is none.
// The schedulers are looked at one by one, so what is found is found once more:
// facts that were so twice, without a change between, were so at one time.
func (g *Graph) find(c *call, suspicious bool) *search {
	for {
		s := &search{graph: g, suspicious: suspicious, sites: make(map[*Direct]*site), runs: make(map[*request]*run)}
		from := s.locate(c)
		if from.at == nil {
			return nil
		}
		s.solve()
		if from.at.hopeful {
			return nil
		}
		s.root = from.at
		if s.holds() {
			return s
		}
	}
}

// search is one look at who waits for whom.
type search struct {
	graph *Graph
	// suspicious has a request whose execution has returned wait for its calls.
	suspicious bool
	root       *site
	sites      map[*Direct]*site
	runs       map[*request]*run
}

// site is a scheduler as it was seen.
type site struct {
	scheduler *Direct
	changes   uint64
	hopeful   bool
	runs      []*run // one for each instance, if there was no other hope
}

// run is a request that is executed, or goes on after its execution, as it was
// seen.
type run struct {
	place
	hopeful bool
	waits   []wait
}

// wait is an open call of a run, with where it is: queued at a site, a run
// itself, or neither if it need not be waited for.
type wait struct {
	call  *call
	place place
	at    *site
	in    *run
}

// place is where a request was, and its counts, which tell whether it has moved.
type place struct {
	request *request
	where   whereabouts
	turns   uint32 // executions begun
	sent    uint32 // responses, of a call
}

type whereabouts uint8

const (
	elsewhere whereabouts = 0 // on its way, or done with its instance
	queued    whereabouts = 1
	executed  whereabouts = 2
	over      whereabouts = 3 // or about to be: its client has gone
)

// locate finds out where a call is, and what that place waits for.
func (s *search) locate(c *call) wait {
	w := wait{call: c, place: c.request.scheduler.locate(c.request)}
	switch w.place.where {
	case queued:
		w.at = s.site(c.request.scheduler)
	case executed:
		w.in = s.run(w.place)
	case elsewhere:
		if s.suspicious {
			w.in = s.run(w.place)
		}
	}
	return w
}

// site looks at a scheduler. If all its instances execute what waits for
// something, it looks at that, too.
func (s *search) site(d *Direct) *site {
	if seen := s.sites[d]; seen != nil {
		return seen
	}
	places, changes, free := d.look()
	found := &site{scheduler: d, changes: changes, hopeful: free}
	s.sites[d] = found
	for _, p := range places {
		if found.hopeful {
			break
		}
		found.hopeful = !s.graph.waits(p.request.task.Request, s.suspicious)
	}
	if found.hopeful {
		return found
	}
	for _, p := range places {
		found.runs = append(found.runs, s.run(p))
	}
	return found
}

// run looks at what a request waits for.
func (s *search) run(p place) *run {
	if seen := s.runs[p.request]; seen != nil {
		return seen
	}
	found := &run{place: p}
	s.runs[p.request] = found
	for _, c := range s.graph.open(p.request.task.Request, s.suspicious) {
		found.waits = append(found.waits, s.locate(c))
	}
	return found
}

// solve finds out who has hope: whoever's hope follows from others', to begin
// with those who wait for nothing. The rest waits in circles.
func (s *search) solve() {
	for changed := true; changed; {
		changed = false
		for _, r := range s.runs {
			if !r.hopeful && !slices.ContainsFunc(r.waits, wait.hopeless) {
				r.hopeful, changed = true, true
			}
		}
		for _, at := range s.sites {
			if !at.hopeful && slices.ContainsFunc(at.runs, func(r *run) bool { return r.hopeful }) {
				at.hopeful, changed = true, true
			}
		}
	}
}

func (w wait) hopeless() bool {
	return w.at != nil && !w.at.hopeful || w.in != nil && !w.in.hopeful
}

// holds reports whether all that has no hope is still as it was seen.
func (s *search) holds() bool {
	for _, at := range s.sites {
		if at.hopeful {
			continue
		}
		if places, changes, free := at.scheduler.look(); free || changes != at.changes || len(places) != len(at.runs) {
			return false
		}
	}
	for _, r := range s.runs {
		if r.hopeful {
			continue
		}
		if r.request.scheduler.locate(r.request) != r.place {
			return false
		}
		for _, w := range r.waits {
			if w.hopeless() && (!s.graph.isOpen(w.call, s.suspicious) || w.call.request.scheduler.locate(w.call.request) != w.place) {
				return false
			}
		}
	}
	return true
}

// refusal is what the caller of a refused call gets.
func (s *search) refusal(c *call) *infer.Error {
	names := s.cycle(c)
	return infer.Errorf(infer.Unavailable, "Model '%s' cannot be called: every instance of it waits for this call (%s)",
		names[0], strings.Join(names, " → "))
}

// cycle names the models on a shortest way from the instances that the call
// waits for to itself.
func (s *search) cycle(c *call) []string {
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
	names := []string{c.request.scheduler.config.Model}
	for i := 0; i < len(steps); i++ { // grows meanwhile
		for _, w := range steps[i].run.waits {
			if w.call == c {
				for at := steps[i]; at != nil; at = at.before {
					names = slices.Insert(names, 0, at.run.request.scheduler.config.Model)
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

// The rest is what a scheduler tells.

// hopeful reports at a glance whether an instance will be free: most are.
func (d *Direct) hopeful() bool {
	places, _, free := d.look()
	return free || slices.ContainsFunc(places, func(p place) bool { return !d.config.Graph.waits(p.request.task.Request, true) })
}

// look returns what the instances execute, a count of instances that came and
// went, and whether one is idle, or is being restarted.
func (d *Direct) look() (places []place, changes uint64, free bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free = len(d.idle) > 0
	for _, hopeless := range d.hopeless {
		free = free || !hopeless
	}
	if free {
		return nil, d.changes, true
	}
	for _, has := range d.up {
		places = append(places, d.locateLocked(has.executes))
	}
	return places, d.changes, false
}

func (d *Direct) locate(r *request) place {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locateLocked(r)
}

func (d *Direct) locateLocked(r *request) place {
	p := place{request: r, turns: r.turns}
	if r.call != nil {
		p.sent = r.call.sent.Load()
	}
	switch has := d.up[r.instance]; {
	case r.ended || r.queued && r.task.Context.Err() != nil:
		p.where = over
	case r.queued:
		p.where = queued
	case has != nil && has.executes == r:
		p.where = executed
	}
	return p
}

// waitingCalls lists the requests of models that wait.
func (d *Direct) waitingCalls() []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*call
	for r := d.waiting.first; r != nil; r = r.after {
		if r.call != nil {
			list = append(list, r.call)
		}
	}
	return list
}

// takeBack takes a request from the queue, if it waits.
func (d *Direct) takeBack(r *request) bool {
	d.mu.Lock()
	was := r.queued
	if was {
		d.waiting.remove(r)
	}
	d.mu.Unlock()
	if was {
		d.config.Observer.Pending(-1)
	}
	return was
}

// out counts a request that was accepted and is refused after all.
func (d *Direct) out() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outLocked()
}
