package repository

import (
	"maps"
	"slices"
)

const (
	// maxOvertaken is how many loads in succession are overtaken for a change of the same file. The next one is let end.
	maxOvertaken = 2
	// habitual is how many loads in succession have to have changed a file while they were under way until it counts as
	// written by the load: a person who saves it saves it at other times, too.
	habitual = 3
)

// Writes tell changes that the loads of a model make in its sources from those that people make. A model that writes
// other code into a module at each load would otherwise be loaded for ever, as each load is the reason for the next.
//
// States: Begin, then any number of MayOvertake while the load is under way, then End, or the next Begin.
// The zero Writes know of no load. Callers: one goroutine.
type Writes struct {
	underWay  bool
	before    Footprint
	overtaken map[string]int // how many loads were overtaken for a change of a file since one has ended without such a change
	ended     map[string]int // during how many of the last loads that were not overtaken a file was changed, without a break
}

// Begin tells of a load that begins. Before is what the sources look like.
func (w *Writes) Begin(before Footprint) { w.underWay, w.before = true, before }

// UnderWay reports whether a load has begun, and not ended.
func (w *Writes) UnderWay() bool { return w.underWay }

// MayOvertake reports whether another load may begin, for what the sources look like now, before the one that is under way
// has ended. If it reports true, the caller begins that load.
func (w *Writes) MayOvertake(now Footprint) bool {
	changed := w.before.differences(now)
	if len(changed) > 0 && !slices.ContainsFunc(changed, func(path string) bool { return w.overtaken[path] < maxOvertaken }) {
		return false
	}
	w.overtaken = counted(w.overtaken, changed)
	return true
}

// End tells that the load has ended, with what the sources look like now, and which imports have changed since they were
// imported. If all that has changed is what every load changes, End returns it, in the order of the paths, and with first
// if it has not done so for the load before. Otherwise the changes are a person's.
func (w *Writes) End(now Footprint, rewritten []string) (own []string, first bool) {
	changed := append(w.before.differences(now), rewritten...)
	slices.Sort(changed)
	changed = slices.Compact(changed)
	w.underWay, w.before, w.ended = false, Footprint{}, counted(w.ended, changed)
	maps.DeleteFunc(w.overtaken, func(path string, _ int) bool { return w.ended[path] == 0 })
	for _, path := range changed {
		if w.ended[path] < habitual {
			return nil, false
		}
		first = first || w.ended[path] == habitual
	}
	return changed, first
}

// counted counts the paths further, and forgets all others.
func counted(before map[string]int, paths []string) map[string]int {
	now := make(map[string]int, len(paths))
	for _, path := range paths {
		now[path] = before[path] + 1
	}
	return now
}
