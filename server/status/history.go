package status

import (
	"math"
	"time"

	"github.com/nereid-serving/nereid/metrics"
)

const (
	// Step is the interval of the points of the history.
	Step = 10 * time.Second
	// Points is the number of points for the longest period.
	Points = 15*6 + 1
	// busyVersions bounds the versions with a history, each of whose points takes 300 bytes.
	busyVersions = 1024
)

// periods are those of Version.Recent.
var periods = [...]time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// buckets are the buckets of metrics.StageBounds and the one above them.
const buckets = len(metrics.Times{}.Counts)

// point has the counts of one version at one time. Counts wrap around at 2³², which does not affect
// the difference of two points.
type point struct {
	at                                        time.Time
	succeeded, failed, inferences, executions uint32
	request, queue, infer                     [buckets]uint32
}

// key names a version.
type key struct {
	namespace, model string
	version          int64
}

// history has the last points of one version, oldest first. Points without a change are left out:
// only the end of an idle period is kept.
type history struct {
	points []point // bound: Points
	total  int64   // requests so far; it falls when the version is reloaded
}

func pointOf(at time.Time, f *metrics.Figures) point {
	p := point{at: at, succeeded: uint32(f.Succeeded), inferences: uint32(f.Inferences), executions: uint32(f.Executions)}
	for _, n := range f.Failed {
		p.failed += uint32(n)
	}
	if f.Stages != nil {
		for i := range buckets {
			p.request[i], p.queue[i], p.infer[i] = uint32(f.Stages[0].Counts[i]), uint32(f.Stages[1].Counts[i]), uint32(f.Stages[3].Counts[i])
		}
	}
	return p
}

// same reports whether nothing has changed between two points.
func (p *point) same(q *point) bool {
	at := p.at
	p.at = q.at
	equal := *p == *q
	p.at = at
	return equal
}

// keep adds a point, and drops the points that no period needs.
func (h *history) keep(p point) {
	if n := len(h.points); n >= 2 && h.points[n-1].same(&p) && h.points[n-2].same(&p) {
		h.points[n-1].at = p.at
	} else {
		h.points = append(h.points, p)
	}
	old := 0
	for len(h.points)-old > 1 && (p.at.Sub(h.points[old+1].at) >= periods[len(periods)-1] || len(h.points)-old > Points) {
		old++
	}
	h.points = append(h.points[:0], h.points[old:]...)
}

// recent compares the present with the last point before each period. A period that begins before
// the first point uses that one.
func (h *history) recent(now *point, timed bool) []Period {
	list := make([]Period, 0, len(periods))
	for _, long := range periods {
		p := Period{Seconds: int(long / time.Second)}
		for i := len(h.points) - 1; i >= 0; i-- {
			then := &h.points[i]
			if i > 0 && now.at.Sub(then.at) < long {
				continue
			}
			p.Covered = min(now.at.Sub(then.at), long).Seconds()
			p.Succeeded, p.Failed = int64(now.succeeded-then.succeeded), int64(now.failed-then.failed)
			p.Inferences, p.Executions = int64(now.inferences-then.inferences), int64(now.executions-then.executions)
			if timed {
				p.Request, p.Queue, p.Infer = between(&then.request, &now.request), between(&then.queue, &now.queue), between(&then.infer, &now.infer)
			}
			break
		}
		list = append(list, p)
	}
	return list
}

// between returns the percentiles of the counts between two points, or nil if they are equal.
func between(then, now *[buckets]uint32) *Percentiles {
	var counts [buckets]uint64
	for i := range counts {
		counts[i] = uint64(now[i] - then[i])
	}
	return PercentilesOf(counts[:], bounds())
}

// PercentilesOf returns the percentiles of a histogram whose buckets have these upper bounds in
// seconds, or nil if it is empty. It assumes an even distribution within a bucket. Times above the
// last bound count as the bound.
func PercentilesOf(counts []uint64, bounds []float64) *Percentiles {
	all := uint64(0)
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return nil
	}
	at := func(share float64) float64 {
		rank, below, lower := share*float64(all), 0.0, 0.0
		for i, n := range counts {
			if i >= len(bounds) {
				break
			}
			if n > 0 && below+float64(n) >= rank {
				return lower + (bounds[i]-lower)*math.Max(rank-below, 0)/float64(n)
			}
			below += float64(n)
			lower = bounds[i]
		}
		return lower
	}
	return &Percentiles{P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99)}
}

// bounds returns the bounds of the buckets in seconds.
func bounds() []float64 {
	list := make([]float64, 0, buckets-1)
	for _, b := range metrics.StageBounds() {
		list = append(list, b.Seconds())
	}
	return list
}
