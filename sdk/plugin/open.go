package plugin

import (
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
)

// mostCancelled bounds the number of remembered handles of cancelled requests, because frames of
// the server may refer to requests that have ended.
const mostCancelled = 4096

// cancelled records the requests whose clients have disconnected.
type cancelled struct {
	count atomic.Int32 // of handles and watched; 0 for most requests

	mu      sync.Mutex
	handles map[uint64]struct{}
	watched map[uint64]chan struct{} // closed when the client goes
}

// add handles a CANCEL. The request may not have arrived yet, or may have ended.
func (c *cancelled) add(handle uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handles == nil || len(c.handles) >= mostCancelled {
		c.handles = make(map[uint64]struct{})
	}
	c.handles[handle] = struct{}{}
	if gone, ok := c.watched[handle]; ok {
		delete(c.watched, handle)
		close(gone)
	}
	c.countLocked()
}

func (c *cancelled) countLocked() { c.count.Store(int32(len(c.handles) + len(c.watched))) }

// has reports whether the client of a request has disconnected.
func (c *cancelled) has(handle uint64) bool {
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, yes := c.handles[handle]
	return yes
}

// watch returns a channel that is closed when the client of a request disconnects.
func (c *cancelled) watch(handle uint64) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone, ok := c.watched[handle]; ok {
		return gone
	}
	gone := make(chan struct{})
	if _, already := c.handles[handle]; already {
		close(gone)
		return gone
	}
	if c.watched == nil {
		c.watched = make(map[uint64]chan struct{})
	}
	c.watched[handle] = gone
	c.countLocked()
	return gone
}

// forget is called when a request has its response. It notifies the watchers.
func (c *cancelled) forget(handle uint64) {
	if c.count.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handles, handle)
	if gone, ok := c.watched[handle]; ok {
		delete(c.watched, handle)
		close(gone) // nobody waits for the answer any more
	}
	c.countLocked()
}

// open holds the open requests of a decoupled model, by handle.
type open struct {
	mu    sync.Mutex
	tasks map[uint64]*task
}

func (o *open) add(t *task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tasks == nil {
		o.tasks = make(map[uint64]*task)
	}
	o.tasks[t.Handle] = t
}

func (o *open) get(handle uint64) *task {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks[handle]
}

// take removes a request and reports whether it was open.
func (o *open) take(handle uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.tasks[handle]
	delete(o.tasks, handle)
	return ok
}

func (o *open) remove(handle uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tasks, handle)
}

// heldSlots are the window slots of one decoupled request's responses. The engine counts them and
// delays the author; CREDIT releases them.
type heldSlots struct {
	mu    sync.Mutex
	slots []slot
	bytes int64
	full  bool // the author's next response will wait for CREDIT
	over  bool
}

type slot struct {
	memory infer.Memory
	bytes  int64
}

// enter takes a slot for a response, and reports whether the window is full with it.
func (w *heldSlots) enter(s *session, r *infer.Response) (full bool) {
	if r.Slot == nil {
		return false
	}
	var bytes int64
	for i := range r.Outputs {
		bytes += int64(len(r.Outputs[i].Data))
	}
	one := slot{r.Slot, bytes}
	r.Slot = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = append(w.slots, one)
	w.bytes += bytes
	w.full = len(w.slots) >= s.window.Responses || w.bytes >= s.window.Bytes
	return w.full
}

// credit releases the slots of responses that have left the server, the oldest first.
func (w *heldSlots) credit(responses uint32) {
	w.mu.Lock()
	n := min(int(responses), len(w.slots))
	gone := append([]slot(nil), w.slots[:n]...)
	w.slots = append(w.slots[:0], w.slots[n:]...)
	for i := range gone {
		w.bytes -= gone[i].bytes
	}
	w.full = false
	w.mu.Unlock()
	for i := range gone {
		gone[i].memory.Release()
	}
}

// await polls for CREDIT for a moment, and then leaves that to the standby.
func (w *heldSlots) await(s *session) {
	s.peer.Linger(&s.answerSpin, w.hasRoom)
	if !w.hasRoom() {
		s.standby.need(w.hasRoom)
	}
}

func (w *heldSlots) hasRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.full || w.over
}

// end releases all slots, because nothing more is sent.
func (w *heldSlots) end() {
	w.mu.Lock()
	gone := w.slots
	w.slots, w.over = nil, true
	w.mu.Unlock()
	for i := range gone {
		gone[i].memory.Release()
	}
}
