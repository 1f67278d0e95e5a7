package boundary

import (
	"sync"

	"github.com/rs/zerolog"
)

// WaitGroup waits for goroutines behind a boundary. Unlike a sync.WaitGroup it may
// grow from zero while a goroutine waits: Wait returns once the count has been zero.
// The zero value is ready for use.
type WaitGroup struct {
	mu   sync.Mutex
	n    int
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
func (w *WaitGroup) Add() {
	w.mu.Lock()
	w.n++
	w.mu.Unlock()
}

// Done counts one less.
func (w *WaitGroup) Done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	if w.n < 0 {
		panic("boundary: a wait group below zero")
	}
	if w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

// Wait returns when the count is zero, or has been since the call.
func (w *WaitGroup) Wait() {
	w.mu.Lock()
	if w.n == 0 {
		w.mu.Unlock()
		return
	}
	if w.none == nil {
		w.none = make(chan struct{})
	}
	none := w.none
	w.mu.Unlock()
	<-none
}
