package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RepositoryFigures counts the work of a model repository in an object store since the server
// began.
type RepositoryFigures struct {
	Failures     uint64        // listings and copies that failed because of the store
	FetchedBytes uint64        // read from the store
	TakenBytes   uint64        // reused from an earlier copy
	Copies       uint64        // complete ones
	Copying      time.Duration // in copies, complete or not, added up
	ListingAge   time.Duration // since the last complete listing began
}

// Repository shows the figures of a model repository in an object store, which are requested for
// each page. The URL has no credentials. It is called before models make metrics.
func (r *Registry) Repository(url string, figures func() RepositoryFigures) {
	for _, c := range []struct {
		name, help string
		value      func(RepositoryFigures) float64
	}{
		{"nereid_repository_failures_total", "Listings and copies of a model repository that failed because of its object store", func(f RepositoryFigures) float64 { return float64(f.Failures) }},
		{"nereid_repository_fetched_bytes_total", "Bytes read from the object store of a model repository", func(f RepositoryFigures) float64 { return float64(f.FetchedBytes) }},
		{"nereid_repository_taken_over_bytes_total", "Bytes of unchanged objects that a copy took over from the one before", func(f RepositoryFigures) float64 { return float64(f.TakenBytes) }},
		{"nereid_repository_copies_total", "Models that were copied from an object store", func(f RepositoryFigures) float64 { return float64(f.Copies) }},
		{"nereid_repository_copy_seconds_total", "Time that copies of models from an object store took", func(f RepositoryFigures) float64 { return f.Copying.Seconds() }},
	} {
		r.custom.reserved[c.name] = true
		r.gatherer.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: c.name, Help: c.help, ConstLabels: prometheus.Labels{"repository": url},
		}, func() float64 { return c.value(figures()) }))
	}
	r.Gauge("nereid_repository_listing_age_seconds", "Time since the last complete listing of a model repository in an object store began",
		func() float64 { return figures().ListingAge.Seconds() }, "repository", url)
}
