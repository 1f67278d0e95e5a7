package bls

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/panics"
	"github.com/rs/zerolog"
)

// cancellation is the context of a request that a model makes. Unlike a context of package context,
// it has no parent that would keep it until it is cancelled: a request that has ended is forgotten
// without a goroutine.
type cancellation struct {
	log    zerolog.Logger
	lock   sync.Mutex
	done   chan struct{} // made by the first call of Done
	err    error
	afters []*func()
}

var _ context.Context = (*cancellation)(nil)

// Deadline implements context.Context.
func (c *cancellation) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (c *cancellation) Value(any) any { return nil }

// Done implements context.Context.
func (c *cancellation) Done() <-chan struct{} {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *cancellation) Err() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.err
}

// AfterFunc is called by context.AfterFunc.
func (c *cancellation) AfterFunc(f func()) (stop func() bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.err != nil {
		panics.Go(c.log, panics.Request, f, nil)
		return func() bool { return false }
	}
	after := &f
	c.afters = append(c.afters, after) // bound: the server's own calls
	return func() bool {
		c.lock.Lock()
		defer c.lock.Unlock()
		at := slices.Index(c.afters, after)
		if at < 0 {
			return false
		}
		c.afters = slices.Delete(c.afters, at, at+1)
		return true
	}
}

func (c *cancellation) cancel() {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.err != nil {
		return
	}
	c.err = context.Canceled
	if c.done != nil {
		close(c.done)
	}
	for _, after := range c.afters {
		panics.Go(c.log, panics.Request, *after, nil)
	}
	c.afters = nil
}
