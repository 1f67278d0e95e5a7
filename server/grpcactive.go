package server

import (
	"sync"
	"sync/atomic"
)

// grpcActive counts goroutines and tells when there is none. Unlike a WaitGroup
// it may be entered while somebody waits.
type grpcActive struct {
	count   atomic.Int64
	mu      sync.Mutex
	waiters []chan struct{} // closed when count has been 0
}

func (a *grpcActive) enter() { a.count.Add(1) }

func (a *grpcActive) leave() {
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

// none returns a channel that is closed when nobody is inside.
func (a *grpcActive) none() <-chan struct{} {
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
