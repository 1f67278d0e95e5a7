package models

import (
	"sync"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/boundary"
)

// tally counts what goes on. A sync.WaitGroup may not grow from zero while
// somebody waits, and ends the process if it does; this one may: who waits goes on
// once there has been nothing.
type tally struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil while nobody waits
}

// Go calls f in a goroutine, which counts until it has ended. After a panic it calls
// failed, unless that is nil.
func (t *tally) Go(log zerolog.Logger, f func(), failed func(error)) {
	t.Add()
	f = boundary.Guard(log, boundary.Models, f, failed)
	boundary.Go(log, boundary.Models, func() {
		defer t.Done()
		f()
	}, nil)
}

// Add counts one more.
func (t *tally) Add() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

// Done counts one less.
func (t *tally) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n < 0 {
		panic("models: a tally below zero")
	}
	if t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

// Wait returns when there is nothing, or has been since it was called.
func (t *tally) Wait() {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	<-none
}
