package process

import (
	"context"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/panics"
)

// readiness is what a process is asked of its model: at most one question at a time,
// whose response all share that ask meanwhile.
type readiness struct {
	mu     sync.Mutex // held alone, for a few instructions
	probes uint64     // questions so far
	check  *check     // the question without a response yet
	ended  bool       // with the life: nothing is asked any more
}

// check is one question to a model whether it is ready.
type check struct {
	probe uint64
	// settled is closed, once, when err is set: by the reader of the ring, by the
	// goroutine that could not send the question, or by the end of the life.
	settled chan struct{}
	err     error
}

// AsksReady implements backend.Asker.
func (m *Model) AsksReady() bool {
	for _, in := range m.list() {
		if in.asks.Load() {
			return true
		}
	}
	return false
}

var _ backend.Asker = (*Model)(nil)

// Ready implements backend.Instance: an instance is ready while a stub that has
// initialised its model is alive and, if the model has is_ready, says so. The
// errors have Triton's texts.
func (in *Instance) Ready(ctx context.Context) error {
	l := in.serving()
	switch {
	case l == nil:
		return in.unhealthy()
	case !l.asks:
		return nil
	}
	c, shared := l.readiness.question()
	if c == nil {
		return in.unhealthy()
	}
	late := ReadyLate
	if shared {
		late = SharedReadyLate
	} else if err := l.channel.Send(ipc.ReadyQuestion, c.probe, nil); err != nil {
		l.readiness.settle(c.probe, in.unhealthy()) // its end is near
	}
	// A late check goes on in the model, and readiness checks that come meanwhile
	// wait for its response.
	limit := panics.NewLimit(in.model.settings.ReadyTimeout)
	defer limit.Stop()
	select {
	case <-c.settled:
		return c.err
	case <-limit.C:
		return in.fault(infer.Unavailable, late)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serving returns the life that takes batches, nil if there is none.
func (in *Instance) serving() *life {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.life
}

// question returns the question that has no response yet; if there is none, a new one,
// which is not shared and which the caller sends. It is nil after the end.
func (r *readiness) question() (c *check, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return nil, false
	case r.check != nil:
		return r.check, true
	}
	r.probes++
	r.check = &check{probe: r.probes, settled: make(chan struct{})}
	return r.check, false
}

// settle ends the check with that probe and reports whether there was one.
func (r *readiness) settle(probe uint64, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.check == nil || r.check.probe != probe {
		return false
	}
	r.settleLocked(err)
	return true
}

func (r *readiness) settleLocked(err error) {
	r.check.err = err
	close(r.check.settled)
	r.check = nil
}

// end settles the check that there is, and has no other asked.
func (r *readiness) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.check != nil {
		r.settleLocked(err)
	}
}

// isReady takes the response to READY?.
func (l *life) isReady(f ipc.Frame) error {
	var body struct {
		Ready bool   `msgpack:"ready"`
		Error string `msgpack:"error"`
	}
	if err := frames.DecodeMap(f, &body); err != nil {
		return err
	}
	var reason error
	switch {
	case body.Error != "":
		reason = &infer.Error{Code: infer.Internal, Message: body.Error} // the model's own text, of MaxMap bytes at most
	case !body.Ready:
		reason = l.in.fault(infer.Unavailable, NotReady)
	}
	if !l.readiness.settle(f.ID, reason) {
		return ipc.Broken("kind", "READY of probe %d, which was not asked", f.ID)
	}
	return nil
}
