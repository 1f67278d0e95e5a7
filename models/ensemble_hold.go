package models

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/scheduler"
	"github.com/nereid-serving/nereid/scheduler/ensemble"
)

// closing is added to the count of holds when a version is to end.
const closing = -1 << 40

// holds counts the holders that have found a version and may still make requests of it:
// calls on their way to the scheduler, and requests of ensembles.
type holds struct {
	count atomic.Int64
	once  sync.Once
	none  chan struct{} // closed when the version is to end and nothing holds it
}

func newHolds() *holds { return &holds{none: make(chan struct{})} }

// take reports whether the version can be held.
func (h *holds) take() bool {
	if h.count.Add(1) > 0 {
		return true
	}
	h.release()
	return false
}

func (h *holds) release() {
	if h.count.Add(-1) == closing {
		h.once.Do(func() { close(h.none) })
	}
}

// end has nothing hold the version from now on, and waits for its holders.
func (h *holds) end(ctx context.Context) error {
	if h.count.Add(closing) == closing {
		h.once.Do(func() { close(h.none) })
	}
	select {
	case <-h.none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// composer finds what an ensemble calls, by the names that its steps have.
type composer struct {
	*Registry
	parts map[string]repository.Identity
}

var _ ensemble.Composer = composer{}

// Hold implements ensemble.Composer.
func (c composer) Hold(model string, version int64) (ensemble.Composed, error) {
	id := c.parts[model]
	l, err := held(func() (*loaded, error) { return c.serving.Load().models[id].version(id.Name, version) })
	if err != nil {
		return nil, err
	}
	return composed{l}, nil
}

// held has lookup find a version that can be held, and holds it.
func held(lookup func() (*loaded, error)) (*loaded, error) {
	for {
		l, err := lookup()
		if err != nil || l.holds.take() {
			return l, err
		}
		// It was replaced just now: its successor is there already, or it is gone.
	}
}

// composed is a version that a request of an ensemble holds.
type composed struct{ *loaded }

// Submit implements ensemble.Composed.
func (c composed) Submit(ctx context.Context, req *infer.Request, send infer.Sender) (by backend.Awaiter, err error) {
	submit := c.scheduler.Submit
	if s, can := c.scheduler.(scheduler.Starter); can {
		submit = func(ctx context.Context, req *infer.Request, send infer.Sender) (err error) {
			by, err = s.Begin(ctx, req, send)
			return err
		}
	}
	err = c.run(ctx, req, send, submit)
	return by, err
}

// Batches implements ensemble.Composed.
func (c composed) Batches() bool { return c.spec.Batches() }

// Dims implements ensemble.Composed. The version may be newer than the ensemble,
// and have no such input any more.
func (c composed) Dims(input string) []int64 { return c.spec.Dims(input) }

// Release implements ensemble.Composed.
func (c composed) Release() { c.holds.release() }
