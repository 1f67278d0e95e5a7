package execution

import (
	"context"
	"sync"
	"sync/atomic"
)

// Window limits the responses of one request of a decoupled model that have been sent and have not
// left the server. Send waits while it is full.
type Window struct {
	Responses int   // 0: 64
	Bytes     int64 // of outputs; 0: 8 MiB
}

func (w Window) withDefaults() Window {
	if w.Responses <= 0 {
		w.Responses = 64
	}
	if w.Bytes <= 0 {
		w.Bytes = 8 << 20
	}
	return w
}

// occupancy counts the responses of one request in its window.
type occupancy struct {
	of *Window

	mu        sync.Mutex // a leaf
	responses int
	bytes     int64
	over      bool          // the request has been answered: nothing waits
	room      chan struct{} // closed when there is room; nil if nobody waits
}

// enter counts a response once there is room for it, or returns false if ctx ends first. The last
// response does not wait.
func (w *occupancy) enter(ctx context.Context, bytes int64, last bool) bool {
	for {
		w.mu.Lock()
		if last || w.over || w.responses < w.of.Responses && w.bytes < w.of.Bytes {
			w.responses++
			w.bytes += bytes
			w.mu.Unlock()
			return true
		}
		if w.room == nil {
			w.room = make(chan struct{})
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *occupancy) leave(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responses--
	w.bytes -= bytes
	w.wakeLocked()
}

// end wakes all waiters. w may be nil.
func (w *occupancy) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.wakeLocked()
}

func (w *occupancy) wakeLocked() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// slot is the slot of a response in its window. It implements infer.Memory.
type slot struct {
	window *occupancy
	bytes  int64
	refs   atomic.Int32
}

func newSlot(w *occupancy, bytes int64) *slot {
	s := &slot{window: w, bytes: bytes}
	s.refs.Store(1)
	return s
}

// Retain adds a reference.
func (s *slot) Retain() { s.refs.Add(1) }

// Release releases a reference. With the last one the response has left.
func (s *slot) Release() {
	if s.refs.Add(-1) == 0 {
		s.window.leave(s.bytes)
	}
}
