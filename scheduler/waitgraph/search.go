package waitgraph

import "slices"

// hopeful reports at a glance whether an instance will be free: most are.
func (g *Graph) hopeful(at Station) bool {
	places, _, free := at.Look()
	return free || slices.ContainsFunc(places, func(p Place) bool { return !g.waits(p.Batch, true) })
}

// find looks for a deadlock that a queued BLS request is part of, nil if there is none.
// The schedulers are looked at one by one, so what is found is found once more:
// facts that were so twice, without a change between, were so at one time.
func (g *Graph) find(q *BLSRequest, suspicious bool) *search {
	for {
		s := &search{graph: g, suspicious: suspicious, sites: make(map[Station]*site), runs: make(map[Batch]*run)}
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

// search is one look at which executions wait for which.
type search struct {
	graph *Graph
	// suspicious has requests whose execution has returned wait for its BLS requests.
	suspicious bool
	root       *site
	sites      map[Station]*site
	runs       map[Batch]*run
}

// site is a station as it was seen.
type site struct {
	station Station
	changes uint64
	hopeful bool
	runs    []*run // one for each instance, if there was no other hope
}

// run is a batch that is executed, or goes on after its execution, as it was
// seen.
type run struct {
	Place
	hopeful bool
	waits   []wait
}

// wait is an open BLS request of a run, with where it is: queued at a site, a run
// itself, or neither if it need not be waited for.
type wait struct {
	request *BLSRequest
	place   Place
	at      *site
	in      *run
}

// locate finds out where a BLS request is, and what that place waits for.
func (s *search) locate(q *BLSRequest) wait {
	w := wait{request: q, place: q.by.Where()}
	switch w.place.Where {
	case Queued:
		w.at = s.site(q.by.Station())
	case Executed:
		w.in = s.run(w.place.Batch.Where())
	case Elsewhere:
		if s.suspicious && w.place.Batch != nil {
			w.in = s.run(w.place.Batch.Where())
		}
	}
	return w
}

// site looks at a station. If all its instances execute what waits for
// something, it looks at that, too.
func (s *search) site(d Station) *site {
	if seen := s.sites[d]; seen != nil {
		return seen
	}
	places, changes, free := d.Look()
	found := &site{station: d, changes: changes, hopeful: free}
	s.sites[d] = found
	for _, p := range places {
		if found.hopeful {
			break
		}
		found.hopeful = !s.graph.waits(p.Batch, s.suspicious)
	}
	if found.hopeful {
		return found
	}
	for _, p := range places {
		found.runs = append(found.runs, s.run(p))
	}
	return found
}

// run looks at what the requests of a batch wait for.
func (s *search) run(p Place) *run {
	if seen := s.runs[p.Batch]; seen != nil {
		return seen
	}
	found := &run{Place: p}
	s.runs[p.Batch] = found
	for _, q := range s.graph.open(p.Batch, s.suspicious) {
		found.waits = append(found.waits, s.locate(q))
	}
	return found
}

// solve marks the executions that can end as hopeful: first those that wait for nothing,
// then those that wait for hopeful ones only. The others wait in circles.
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
		if places, changes, free := at.station.Look(); free || changes != at.changes || len(places) != len(at.runs) {
			return false
		}
	}
	for _, r := range s.runs {
		if r.hopeful {
			continue
		}
		if r.Batch.Where() != r.Place {
			return false
		}
		for _, w := range r.waits {
			if w.hopeless() && (!s.graph.isOpen(w.request, s.suspicious) || w.request.by.Where() != w.place) {
				return false
			}
		}
	}
	return true
}
