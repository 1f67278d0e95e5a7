package repository

import (
	"maps"
	"slices"
)

const (
	// maxOvertaken is how many loads in succession are overtaken for a change of the same file. The next two are overtaken for the second
	// change alone that each of them sees, the two behind for the third, and so on: a load that writes a file any number of times is let end at
	// some point, and a person who saves it often enough is heard during each load, even if that hangs.
	maxOvertaken = 2
	// habitual is how many loads in succession have to have changed a file while they were under way until it counts as
	// written by the load: a person who saves it saves it at other times, too. Of changes that were at rest long before the load has ended it
	// takes twice as many: during a slow load a person saves easily.
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
	latest    Footprint      // what MayOvertake was told last, or before
	contents  map[string]int // how many contents of a file MayOvertake was told during this load, but for those before it
	overtaken map[string]int // how many loads were overtaken for a change of a file since one has ended without such a change
	// Of the files that each of the last loads that were not overtaken has changed:
	ended map[string]int // during how many, in halves: 1 for a load that MayOvertake has told of the change, 2 for others
	most  map[string]int // the most contents that the file had during one of them
}

// Begin tells of a load that begins. Before is what the sources look like.
func (w *Writes) Begin(before Footprint) {
	w.underWay, w.before, w.latest, w.contents = true, before, before, make(map[string]int)
}

// UnderWay reports whether a load has begun, and not ended.
func (w *Writes) UnderWay() bool { return w.underWay }

// MayOvertake reports whether another load may begin, for what the sources look like now, at rest, before the one that is
// under way has ended. If it reports true, the caller begins that load. If it reports false, and the sources have changed since the last
// call, path is a file that has, and further is how many changes more of it overtake the load. Path is empty where loads are known to write the file.
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

// lacks is how many changes of a file more have to be seen for the load that is under way to be overtaken.
func (w *Writes) lacks(path string) int {
	return w.overtaken[path]/maxOvertaken + 1 - w.contents[path]
}

// End tells that the load has ended, with what the sources look like now, and which imports have changed since they were
// imported. If all that has changed is what every load changes, End returns it, in the order of the paths, and with first
// if it has not done so for the load before. Otherwise the changes are a person's.
func (w *Writes) End(now Footprint, rewritten []string) (own []string, first bool) {
	late := w.latest.differences(now)
	changed := append(w.before.differences(now), rewritten...)
	slices.Sort(changed)
	changed = slices.Compact(changed)
	ended, most, persons := make(map[string]int), make(map[string]int), false
	for _, path := range changed {
		contents := w.contents[path]
		if slices.Contains(late, path) {
			contents++
		}
		ended[path], most[path] = w.ended[path], max(1, w.most[path], contents)
		switch {
		case contents > max(1, w.most[path]): // a person may have saved it, too; a load that always writes so often shows that the next time
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

// counted counts the paths further, and forgets all others.
func counted(before map[string]int, paths []string) map[string]int {
	now := make(map[string]int, len(paths))
	for _, path := range paths {
		now[path] = before[path] + 1
	}
	return now
}
