package replies

import (
	"context"
	"sync"
)

// Order has the requests of one stream enter their schedulers in the order in
// which the stream brought them. Each is handed over by a goroutine of its own.
type Order struct {
	last *Place
}

// Place is a request's place in its stream.
type Place struct {
	before  <-chan struct{} // closed when the one before has entered; nil for the first
	entered chan struct{}
	once    sync.Once
}

// Join takes the next place. The reader of the stream calls it, alone, so last needs no lock.
func (o *Order) Join() *Place {
	p := &Place{entered: make(chan struct{})}
	if o.last != nil {
		p.before = o.last.entered
	}
	o.last = p
	return p
}

// Wait returns when it is p's turn, or ctx ends: then the stream is over, and the order of what
// is cancelled does not matter.
func (p *Place) Wait(ctx context.Context) {
	if p.before == nil {
		return
	}
	select {
	case <-p.before:
	case <-ctx.Done():
	}
}

// Leave lets the next request go. It may be said again.
func (p *Place) Leave() { p.once.Do(func() { close(p.entered) }) }
