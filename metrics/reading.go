package metrics

import (
	"sync"
	"time"
)

// reading is a value that is made anew for a page when it is older than the interval, so that
// reading the page often costs no more.
type reading[T any] struct {
	make     func() T
	interval time.Duration

	mu   sync.Mutex // held while the value is made: pages that are read at once make it once
	read time.Time
	last T
}

// now returns the value, which is not changed.
func (r *reading[T]) now() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read.IsZero() || time.Since(r.read) >= r.interval {
		r.last = r.make()
		r.read = time.Now()
	}
	return r.last
}
