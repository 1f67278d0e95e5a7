package foreign

import "sync/atomic"

// References counts the references to the memory of the type that embeds it, beginning with one.
type References struct {
	more atomic.Int32 // besides the first
}

// Retain adds a reference.
func (r *References) Retain() {
	if r.more.Add(1) <= 0 {
		panic("memory retained after its last release")
	}
}

// Drop drops a reference, for Release of the embedding type, and reports whether it was the last.
func (r *References) Drop() (last bool) {
	n := r.more.Add(-1)
	if n < -1 {
		panic("memory released more often than retained")
	}
	return n < 0
}

// Sole reports whether the caller's reference is the only one. That stays true unless the caller
// adds references.
func (r *References) Sole() bool { return r.more.Load() == 0 }
