package waitgraph

import "slices"

// hopeful reports quickly whether an instance will be free, which is usual.
func (g *Graph) hopeful(at InstanceSet) bool {
	positions, _, free := at.Look()
	return free || slices.ContainsFunc(positions, func(p Position) bool { return !g.waits(p.Batch, true) })
}

// find returns a deadlock that includes a queued BLS request, or nil. The schedulers are examined
// one after another, so the result is examined again: facts that were true twice without a change
// in between were true at one time.
func (g *Graph) find(q *BLSRequest, suspicious bool) *search {
	for {
		s := &search{graph: g, suspicious: suspicious, sites: make(map[InstanceSet]*site), runs: make(map[Batch]*run)}
		from := s.locate(q)
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

// search is one examination of which executions wait for which.
type search struct {
	graph *Graph
	// suspicious makes executions that have returned wait for their BLS requests.
	suspicious bool
	root       *site
	sites      map[InstanceSet]*site
	runs       map[Batch]*run
}

// site is a set of instances as it was seen.
type site struct {
	set     InstanceSet
	changes uint64
	hopeful bool
	runs    []*run // one for each instance, if none is free
}

// run is a batch that is executed, or continues after its execution, as it was seen.
type run struct {
	Position
	hopeful bool
	waits   []wait
}

// wait is a pending BLS request of a run. Its callee has queued it at a site or executes it in a
// run. Otherwise, the search need not follow it.
type wait struct {
	request  *BLSRequest
	position Position
	at       *site
	in       *run
}

// locate finds the position of a BLS request and the dependencies of that position.
func (s *search) locate(q *BLSRequest) wait {
	w := wait{request: q, position: q.by.Position()}
	switch w.position.State {
	case Queued:
		w.at = s.site(q.by.Instances())
	case Executing:
		w.in = s.run(w.position.Batch.Position())
	case Elsewhere:
		if s.suspicious && w.position.Batch != nil {
			w.in = s.run(w.position.Batch.Position())
		}
	}
	return w
}

// site examines a set of instances. If all of them execute requests that wait, it follows those.
func (s *search) site(d InstanceSet) *site {
	if seen := s.sites[d]; seen != nil {
		return seen
	}
	positions, changes, free := d.Look()
	found := &site{set: d, changes: changes, hopeful: free}
	s.sites[d] = found // bound: the instances
	for _, p := range positions {
		if found.hopeful {
			break
		}
		found.hopeful = !s.graph.waits(p.Batch, s.suspicious)
	}
	if found.hopeful {
		return found
	}
	for _, p := range positions {
		found.runs = append(found.runs, s.run(p)) // bound: the instances
	}
	return found
}

// run examines the BLS requests of a batch.
func (s *search) run(p Position) *run {
	if seen := s.runs[p.Batch]; seen != nil {
		return seen
	}
	found := &run{Position: p}
	s.runs[p.Batch] = found // bound: the instances
	for _, q := range s.graph.open(p.Batch, s.suspicious) {
		found.waits = append(found.waits, s.locate(q)) // bound: BLS requests, which are charged
	}
	return found
}

// solve marks the executions that can end as hopeful, starting with those without open BLS
// requests. The remaining ones wait in cycles.
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

// holds reports whether everything without hope is still as it was seen.
func (s *search) holds() bool {
	for _, at := range s.sites {
		if at.hopeful {
			continue
		}
		if positions, changes, free := at.set.Look(); free || changes != at.changes || len(positions) != len(at.runs) {
			return false
		}
	}
	for _, r := range s.runs {
		if r.hopeful {
			continue
		}
		if r.Batch.Position() != r.Position {
			return false
		}
		for _, w := range r.waits {
			if w.hopeless() && (!s.graph.isOpen(w.request, s.suspicious) || w.request.by.Position() != w.position) {
				return false
			}
		}
	}
	return true
}
