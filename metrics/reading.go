package metrics

import (
	"sync"
	"time"
)

// reading is a value that is read again for a page when it is older than the interval.
type reading[T any] struct {
	make     func() T
	interval time.Duration

	mu   sync.Mutex // held while the value is read: concurrent pages share one reading
	read time.Time
	last T
}

// now returns the value, which must not be modified.
func (r *reading[T]) now() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read.IsZero() || time.Since(r.read) >= r.interval {
		r.last = r.make()
		r.read = time.Now()
	}
	return r.last
}
