package grpc

import (
	"sync"
	"sync/atomic"
)

// activity counts goroutines and tells when there is none. Unlike a WaitGroup
// it may be entered during a wait.
type activity struct {
	count   atomic.Int64
	mu      sync.Mutex
	waiters []chan struct{} // closed when count has been 0
}

func (a *activity) enter() { a.count.Add(1) }

func (a *activity) leave() {
	if a.count.Add(-1) != 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiters {
		close(w)
	}
	a.waiters = nil
}

// none returns a channel that is closed when no request is inside.
func (a *activity) none() <-chan struct{} {
	w := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters = append(a.waiters, w)
	if a.count.Load() == 0 {
		a.waiters = a.waiters[:len(a.waiters)-1]
		close(w)
	}
	return w
}
