package execution

import (
	"context"
	"sync"
	"sync/atomic"
)

// WindowLimits bounds the responses of one request of a decoupled model that have been sent and
// have not left the server. Send waits while it is full.
type WindowLimits struct {
	Responses int   // 0: 64
	Bytes     int64 // of outputs; 0: 8 MiB
}

func (l WindowLimits) withDefaults() WindowLimits {
	if l.Responses <= 0 {
		l.Responses = 64
	}
	if l.Bytes <= 0 {
		l.Bytes = 8 << 20
	}
	return l
}

// window counts the responses of one request in its window.
type window struct {
	limits *WindowLimits

	mu        sync.Mutex // a leaf
	responses int
	bytes     int64
	over      bool          // the request has been answered: nothing waits
	room      chan struct{} // closed when there is room; nil if nobody waits
}

// enter counts a response once there is room for it, or returns false if ctx ends first. The last
// response does not wait.
func (w *window) enter(ctx context.Context, bytes int64, last bool) bool {
	for {
		w.mu.Lock()
		if last || w.over || w.responses < w.limits.Responses && w.bytes < w.limits.Bytes {
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

func (w *window) leave(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responses--
	w.bytes -= bytes
	w.wakeLocked()
}

// end wakes all waiters. w may be nil.
func (w *window) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.wakeLocked()
}

func (w *window) wakeLocked() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// slot is the slot of a response in its window. It implements infer.Memory.
type slot struct {
	window *window
	bytes  int64
	refs   atomic.Int32
}

func newSlot(w *window, bytes int64) *slot {
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
