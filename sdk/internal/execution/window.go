package execution

import (
	"context"
	"sync"
	"sync/atomic"
)

// Window bounds what is out of one request of a decoupled model: responses that have been
// sent and have not left the server. Send waits while it is full.
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

// window counts what is out of one request.
type window struct {
	of *Window

	mu        sync.Mutex // a leaf
	responses int
	bytes     int64
	over      bool          // the request has been answered: nothing waits any more
	room      chan struct{} // closed when there is room; nil while nobody waits
}

// enter counts a response, once there is room for it. False: ctx has ended first. The last
// response does not wait.
func (w *window) enter(ctx context.Context, bytes int64, last bool) bool {
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

// leave counts a response out.
func (w *window) leave(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responses--
	w.bytes -= bytes
	w.wakeLocked()
}

// end lets all go on that wait. There may be no window.
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

// slot is the place of a response in its window. It implements infer.Memory.
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

// Release gives a reference up. With the last one the response has left.
func (s *slot) Release() {
	if s.refs.Add(-1) == 0 {
		s.window.leave(s.bytes)
	}
}
