package foreign

import "sync"

// Ending tells the users of a piece of memory that it has ended. The zero Ending has not ended.
type Ending struct {
	mu    sync.Mutex
	ended bool
	last  uint64
	users map[uint64]func() // called by End
}

// OnEnd has gone called at the end, by any goroutine, and returns a function that takes that
// back; nil if the end has come.
func (e *Ending) OnEnd(gone func()) (forget func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return nil
	}
	e.last++
	key := e.last
	if e.users == nil {
		e.users = make(map[uint64]func())
	}
	e.users[key] = gone
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.users, key)
	}
}

// End tells all users, once; the memory is not used any more.
func (e *Ending) End() {
	e.mu.Lock()
	users := e.users
	e.users, e.ended = nil, true
	e.mu.Unlock()
	// Outside the lock: they send frames, and may be taking themselves back.
	for _, gone := range users {
		gone()
	}
}
