package metrics

import (
	"sync/atomic"

	"github.com/nereid-serving/nereid/metrics/exposition"
)

// stages are the histograms of each version, in the order of Durations.
var stages = [...]struct {
	name, help string
	shown      []int // buckets; nil: all
}{
	{"nereid_inference_request_seconds", "Time of a successful request from its acceptance to the end of its execution", nil},
	{"nereid_inference_queue_seconds", "Time of a successful request in the queue", coarse},
	{"nereid_inference_compute_input_seconds", "Time until the model had the inputs of a successful request", roughest},
	{"nereid_inference_compute_infer_seconds", "Time in which the model executed a successful request", coarse},
	{"nereid_inference_compute_output_seconds", "Time from the model's answer to the end of the execution of a successful request", roughest},
}

// stageBounds are the upper bounds of the buckets in ns: 50 µs to 60 s.
var stageBounds = [...]int64{
	50e3, 100e3, 250e3, 500e3,
	1e6, 2.5e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6,
	1e9, 2.5e9, 5e9, 10e9, 30e9, 60e9,
}

// stage counts the times of one stage without a lock, so a page may show a sum that is one request
// ahead of its buckets.
type stage struct {
	counts [len(stageBounds) + 1]atomic.Uint64
	ns     atomic.Int64
}

func (s *stage) observe(ns int64) {
	at := 0
	for at < len(stageBounds) && ns > stageBounds[at] { // most times are short
		at++
	}
	s.counts[at].Add(1)
	s.ns.Add(max(ns, 0))
}

// coarse are the buckets that most stages show; roughest those of stages that are short unless
// tensors are large.
var (
	coarse   = []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 18}
	roughest = []int{2, 4, 7, 10, 13}
)

// stageFamilies returns the histograms. All versions have the same buckets, so they can be added
// up.
func stageFamilies(config *Config) (list []ownFamily) {
	if config.NoStages {
		return nil
	}
	for i, s := range stages {
		var last [len(stageBounds)]string // labels of the displayed buckets
		shown := s.shown
		if shown == nil || config.AllBuckets {
			shown = everyBucket()
		}
		for _, k := range shown {
			last[k] = exposition.Last("le", float64(stageBounds[k])/1e9)
		}
		list = append(list, ownFamily{s.name, s.help, "histogram", func(page *exposition.Page, now *view) {
			for _, m := range now.models {
				if m.stages != nil {
					m.stages[i].write(page, m.full, &last)
				}
			}
		}})
	}
	return list
}

func everyBucket() (list []int) {
	for k := range stageBounds {
		list = append(list, k)
	}
	return list
}

// write writes the histogram unless it is empty. It reads each count once, as requests continue.
func (s *stage) write(page *exposition.Page, labels string, last *[len(stageBounds)]string) {
	var upTo [len(stageBounds)]uint64
	all := uint64(0)
	for k := range upTo {
		all += s.counts[k].Load()
		upTo[k] = all
	}
	all += s.counts[len(stageBounds)].Load()
	if all == 0 {
		return
	}
	page.Sample("_count", labels, "", float64(all))
	page.Sample("_sum", labels, "", float64(s.ns.Load())/1e9)
	for k, bound := range last {
		if bound != "" {
			page.Sample("_bucket", labels, bound, float64(upTo[k]))
		}
	}
	page.Sample("_bucket", labels, aboveAll, float64(all))
}
