package metrics

import "time"

// CacheFigures are the figures of the response cache.
type CacheFigures struct {
	Used, Size                       int64 // bytes
	Entries                          int
	Lookups, Hits, Misses, Evictions uint64
	LookupTime, InsertionTime        time.Duration // total
}

// Cache shows the figures of the server's response cache, which are requested for each page. It is
// called before models make metrics.
func (r *Registry) Cache(figures func() CacheFigures) {
	// Triton has one text for four counters.
	const counts = "Number of cache lookups in response cache"
	for _, g := range []struct {
		name, help string
		value      func(CacheFigures) float64
	}{
		{"nv_cache_util", "Cache utilization [0.0 - 1.0]", func(f CacheFigures) float64 { return float64(f.Used) / float64(f.Size) }},
		{"nv_cache_num_entries", "Number of responses stored in response cache", func(f CacheFigures) float64 { return float64(f.Entries) }},
		{"nv_cache_num_lookups", counts, func(f CacheFigures) float64 { return float64(f.Lookups) }},
		{"nv_cache_num_hits", counts, func(f CacheFigures) float64 { return float64(f.Hits) }},
		{"nv_cache_num_misses", counts, func(f CacheFigures) float64 { return float64(f.Misses) }},
		{"nv_cache_num_evictions", counts, func(f CacheFigures) float64 { return float64(f.Evictions) }},
		{"nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds",
			func(f CacheFigures) float64 { return float64(f.LookupTime.Microseconds()) }},
		{"nv_cache_insertion_duration", "Total cache insertion duration, in microseconds",
			func(f CacheFigures) float64 { return float64(f.InsertionTime.Microseconds()) }},
	} {
		r.Gauge(g.name, g.help, func() float64 { return g.value(figures()) })
	}
}
