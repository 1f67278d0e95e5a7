package foreign

import "sync"

// Ending tells the users of a piece of memory that it has ended. The zero Ending has not ended.
type Ending struct {
	mu    sync.Mutex
	ended bool
	last  uint64
	users map[uint64]func() // called by End; bound: two for each life of a process
}

// OnEnd makes End call gone, in any goroutine, and returns a function that cancels the call; nil
// after the end.
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

// End calls all functions, once; the memory is not used any more.
func (e *Ending) End() {
	e.mu.Lock()
	users := e.users
	e.users, e.ended = nil, true
	e.mu.Unlock()
	// Outside the lock: the functions send frames, and may be cancelling themselves.
	for _, gone := range users {
		gone()
	}
}
