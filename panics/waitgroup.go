package panics

import (
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// WaitGroup waits for goroutines behind a boundary. Unlike a sync.WaitGroup it may grow from zero
// while a goroutine waits, and a goroutine may wait for other events too. A zero that another Add
// ends at once may not end a wait; the zero at which the group stays does. The zero value is ready
// for use.
type WaitGroup struct {
	n atomic.Int64 // hot path: no lock except at zero

	mu   sync.Mutex
	none chan struct{} // closed when n is 0; nil while no goroutine waits
}

// Go calls f in a goroutine, which counts until it has ended. After a panic it calls
// failed, unless that is nil.
func (w *WaitGroup) Go(log zerolog.Logger, where Where, f func(), failed func(error)) {
	w.Add()
	f = Guard(log, where, f, failed)
	Go(log, where, func() {
		defer w.Done()
		f()
	}, nil)
}

// Add counts one more.
func (w *WaitGroup) Add() { w.n.Add(1) }

// Done counts one less.
func (w *WaitGroup) Done() {
	n := w.n.Add(-1)
	if n < 0 {
		panic("panics: a wait group below zero")
	}
	if n > 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Checked again: the group may have grown meanwhile, and None been called after that. The
	// goroutine that brings the count back to zero comes here, too.
	if w.none != nil && w.n.Load() == 0 {
		close(w.none)
		w.none = nil
	}
}

// Count returns the present count.
func (w *WaitGroup) Count() int { return int(w.n.Load()) }

// None returns a channel that is closed when the count is zero. It stays closed even if the group
// grows again.
func (w *WaitGroup) None() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.none == nil {
		w.none = make(chan struct{})
	}
	none := w.none
	// Checked under mu, which Done takes after it has counted: a count that reaches zero after this
	// check finds the channel.
	if w.n.Load() == 0 {
		close(none)
		w.none = nil
	}
	return none
}

// Wait returns when the count is zero.
func (w *WaitGroup) Wait() { <-w.None() }
