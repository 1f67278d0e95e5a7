package repository

import (
	"maps"
	"slices"
)

const (
	// maxOvertaken is the number of successive loads that are overtaken for the first change of the
	// same file. The next two are overtaken only for the second change that each of them sees, the two
	// after them for the third, and so on. A load that writes a file any number of times can therefore
	// end at some point, and a person who saves it often enough interrupts even a load that hangs.
	maxOvertaken = 2
	// habitual is the number of successive loads that must have changed a file before the file counts
	// as written by the load: a person also saves it at other times. Changes that were stable long
	// before the end of the load need twice as many, since a person easily saves during a slow load.
	habitual = 3
)

// Writes distinguishes changes that the loads of a model make in its sources from people's changes.
// Otherwise a model that writes different code into a module at each load would reload forever.
//
// Calls: Begin, then any number of MayOvertake while the load runs, then End, or the next Begin.
// The zero Writes have no load. Only one goroutine calls them.
type Writes struct {
	underWay  bool
	before    Footprint
	latest    Footprint      // the last argument of MayOvertake, or before
	contents  map[string]int // bound: the sources; number of new contents of a file that MayOvertake has seen during this load
	overtaken map[string]int // number of loads overtaken for a change of a file since a load ended without such a change
	// For files that each of the last completed loads has changed:
	ended map[string]int // number of loads, doubled; a load during which MayOvertake saw the change counts 1, others 2
	most  map[string]int // the most contents that the file had during one of them
}

// Begin records the start of a load and the sources before it.
func (w *Writes) Begin(before Footprint) {
	w.underWay, w.before, w.latest, w.contents = true, before, before, make(map[string]int)
}

// UnderWay reports whether a load has begun and not ended.
func (w *Writes) UnderWay() bool { return w.underWay }

// MayOvertake reports whether another load may begin, for the current stable state of the sources,
// before the load in progress has ended. If it returns true, the caller begins that load. If it
// returns false and the sources have changed since the last call, path is a changed file, and
// further is the number of further changes to it that overtake the load. path is empty if loads are
// known to write the file.
func (w *Writes) MayOvertake(now Footprint) (may bool, path string, further int) {
	news := w.latest.differences(now)
	for _, path := range news {
		w.contents[path]++
	}
	w.latest = now
	changed := w.before.differences(now)
	if len(changed) == 0 || slices.ContainsFunc(changed, func(path string) bool { return w.lacks(path) <= 0 }) {
		w.overtaken = counted(w.overtaken, changed)
		return true, "", 0
	}
	slices.Sort(news)
	for _, path := range news {
		if w.ended[path] < 2*habitual {
			return false, path, w.lacks(path)
		}
	}
	return false, "", 0
}

// lacks returns the number of further changes of a file that overtake the load in progress.
func (w *Writes) lacks(path string) int {
	return w.overtaken[path]/maxOvertaken + 1 - w.contents[path]
}

// End records the end of the load, the current sources, and the imports that have changed since
// they were imported. If every change is one that each load makes, End returns them sorted, and
// first reports whether the previous End did not. Otherwise the changes are a person's.
func (w *Writes) End(now Footprint, rewritten []string) (own []string, first bool) {
	late := w.latest.differences(now)
	changed := append(w.before.differences(now), rewritten...) // bound: footprints
	slices.Sort(changed)
	changed = slices.Compact(changed)
	ended, most, persons := make(map[string]int), make(map[string]int), false // bound: changed
	for _, path := range changed {
		contents := w.contents[path]
		if slices.Contains(late, path) {
			contents++
		}
		ended[path], most[path] = w.ended[path], max(1, w.most[path], contents)
		switch {
		case contents > max(1, w.most[path]): // a person may also have saved it; if the load always writes that often, the next load shows it
			persons = true
			continue
		case w.contents[path] > 0:
			ended[path]++
		default:
			ended[path] += 2
		}
		persons = persons || ended[path] < 2*habitual
		first = first || w.ended[path] < 2*habitual
	}
	w.underWay, w.before, w.latest, w.contents = false, Footprint{}, Footprint{}, nil
	w.ended, w.most = ended, most
	maps.DeleteFunc(w.overtaken, func(path string, _ int) bool { return !slices.Contains(changed, path) })
	if persons {
		return nil, false
	}
	return changed, first
}

// counted increments the counts of the paths and drops all others.
//
// bound: paths
func counted(before map[string]int, paths []string) map[string]int {
	now := make(map[string]int, len(paths))
	for _, path := range paths {
		now[path] = before[path] + 1
	}
	return now
}
