package catalog

import (
	"slices"

	"github.com/nereid-serving/nereid/models/config"
)

// plan lists the changes that lead from one source of a model to another. Each version of the new
// source is in one of the first three lists. All lists ascend.
type plan struct {
	keep     []int64 // goes on as it is
	exchange []int64 // needs other instances
	load     []int64
	leave    []int64 // serves, and is to be unloaded when the others are up
}

// planChange compares the source that a model is served from with its new source. was is nil if the
// model is not served. serving are the ready versions, ascending; stale are those whose imports
// outside the model's directory have changed.
//
// bound: the versions of both
func planChange(was, now *Source, serving, stale []int64) plan {
	var p plan
	for _, number := range serving {
		if !has(now.Versions, number) {
			p.leave = append(p.leave, number)
		}
	}
	differ := config.Differ
	if was != nil && was.Upload == nil && now.Upload == nil {
		differ = config.Compare(was.Config, now.Config)
	}
	for _, number := range now.Versions {
		switch {
		case differ == config.Differ, !has(serving, number), slices.Contains(stale, number), !was.Files.SameFor(now.Files, number):
			p.load = append(p.load, number)
		case differ == config.GroupsDiffer:
			p.exchange = append(p.exchange, number)
		default:
			p.keep = append(p.keep, number)
		}
	}
	return p
}

// has reports whether versions, ascending, have a number.
func has(versions []int64, number int64) bool {
	_, found := slices.BinarySearch(versions, number)
	return found
}
