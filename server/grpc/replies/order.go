package replies

import (
	"context"
	"sync"
)

// Order makes the requests of one stream enter their schedulers in the order of the stream,
// although each has its own goroutine.
type Order struct {
	last *Position
}

// Position is a request's position in its stream.
type Position struct {
	before  <-chan struct{} // closed when the previous request has entered; nil for the first
	entered chan struct{}
	once    sync.Once
}

// Join returns the next position. Only the reader of the stream calls it, so last needs no lock.
func (o *Order) Join() *Position {
	p := &Position{entered: make(chan struct{})}
	if o.last != nil {
		p.before = o.last.entered
	}
	o.last = p
	return p
}

// Wait returns when it is p's turn, or when ctx ends: the order of cancelled requests does not
// matter.
func (p *Position) Wait(ctx context.Context) {
	if p.before == nil {
		return
	}
	select {
	case <-p.before:
	case <-ctx.Done():
	}
}

// Leave releases the next request. It may be called again.
func (p *Position) Leave() { p.once.Do(func() { close(p.entered) }) }
