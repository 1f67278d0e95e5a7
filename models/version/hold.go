package version

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/scheduler"
)

// ErrReplaced reports that a version no longer serves.
var ErrReplaced = errors.New("version does not serve any more")

// closing is added to the count of holds to end a version.
const closing = -1 << 40

// holds counts the holders that have found a version and may still make requests of it:
// requests on their way to the scheduler, and requests of ensembles.
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

// end refuses further holds and waits for the holders.
func (h *holds) end(ctx context.Context) error {
	if h.count.Add(closing) == closing {
		h.once.Do(func() { close(h.none) })
	}
	return scheduler.Wait(ctx, h.none)
}

// Held is a version that stays open until Release. The holder may make requests of it. It
// implements backend.Target.
type Held struct{ version *Version }

// Hold keeps the version open until Release. It fails once Close has begun.
func (v *Version) Hold() (h Held, can bool) { return Held{v}, v.holds.take() }

// Release ends the hold. It is called once.
func (h Held) Release() { h.version.holds.release() }

// Infer is infer.Handler's for this version.
func (h Held) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	return h.version.run(ctx, req, send, h.version.scheduler.Infer)
}

// Submit is infer.Submitter's for this version.
func (h Held) Submit(ctx context.Context, req *infer.Request, send infer.Sender) error {
	return h.version.run(ctx, req, send, h.version.scheduler.Submit)
}

// Decoupled implements backend.Target.
func (h Held) Decoupled() bool { return h.version.info.Decoupled() }

// AsksReady implements backend.Target.
func (h Held) AsksReady() bool { return h.version.AsksReady() }

// Ready implements backend.Target.
func (h Held) Ready(ctx context.Context) error { return h.version.Ready(ctx) }

// TakesDevices implements backend.Target.
func (h Held) TakesDevices() bool { return h.version.TakesDevices() }

// Infer is infer.Handler's for this version. While the server exits it fails with
// ErrExiting. If it fails with ErrReplaced, nothing has been sent, and the request belongs
// to the version's successor.
func (v *Version) Infer(ctx context.Context, req *infer.Request, send infer.Sender) error {
	if v.loader.Exiting() {
		return ErrExiting
	}
	h, can := v.Hold()
	if !can {
		return ErrReplaced
	}
	defer h.Release()
	return h.Infer(ctx, req, send)
}
