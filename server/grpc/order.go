package grpc

import (
	"context"
	"sync"
)

// order has the requests of one stream enter their schedulers in the order in
// which the stream brought them. Each is handed over by a goroutine of its own.
type order struct {
	last *place
}

// place is a request's place in its stream.
type place struct {
	before  <-chan struct{} // closed when the one before has entered; nil for the first
	entered chan struct{}
	once    sync.Once
}

// join takes the next place.
func (o *order) join() *place {
	p := &place{entered: make(chan struct{})}
	if o.last != nil {
		p.before = o.last.entered
	}
	o.last = p
	return p
}

// wait returns when it is p's turn, or ctx ends.
func (p *place) wait(ctx context.Context) {
	if p.before == nil {
		return
	}
	select {
	case <-p.before:
	case <-ctx.Done():
	}
}

// leave lets the next request go. It may be said again.
func (p *place) leave() { p.once.Do(func() { close(p.entered) }) }
