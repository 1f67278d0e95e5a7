package process

import (
	"context"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
)

// readiness is what a stub is asked of its model. Guarded by Instance.mu.
type readiness struct {
	probes uint64 // questions so far
	check  *check // the question without an answer yet
}

// check is one question to a model whether it is ready.
type check struct {
	probe    uint64
	answered chan struct{} // closed when err is set
	err      error
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
	l, c, shared := in.question()
	switch {
	case l == nil:
		return in.unhealthy()
	case c == nil:
		return nil
	}
	late := ReadyLate
	if shared {
		late = SharedReadyLate
	} else if err := l.channel.Send(ipc.ReadyQuestion, c.probe, nil); err != nil {
		l.settle(c.probe, in.unhealthy()) // its end is near
	}
	// A late check goes on in the model, and readiness checks that come meanwhile
	// wait for its answer.
	timer := time.NewTimer(orForever(in.model.settings.ReadyTimeout))
	defer timer.Stop()
	select {
	case <-c.answered:
		return c.err
	case <-timer.C:
		return in.fault(infer.Unavailable, late)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// question returns the question that the model has not answered yet; if it has none, a
// new one, which is not shared and which the caller sends. Without is_ready there is
// none, without a stub no life.
func (in *Instance) question() (l *life, c *check, shared bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	l = in.life
	if l == nil || !l.asks {
		return l, nil, false
	}
	if l.check != nil {
		return l, l.check, true
	}
	l.probes++
	l.check = &check{probe: l.probes, answered: make(chan struct{})}
	return l, l.check, false
}

// settle ends the check with that probe and reports whether there was one.
func (l *life) settle(probe uint64, err error) bool {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	c := l.check
	if c == nil || c.probe != probe {
		return false
	}
	l.check = nil
	c.err = err
	close(c.answered)
	return true
}

// isReady takes the answer to READY?.
func (l *life) isReady(f ipc.Frame) error {
	var body struct {
		Ready bool   `msgpack:"ready"`
		Error string `msgpack:"error"`
	}
	if err := decode(f, &body); err != nil {
		return err
	}
	var answer error
	switch {
	case body.Error != "":
		answer = infer.Errorf(infer.Internal, "%s", body.Error)
	case !body.Ready:
		answer = l.in.fault(infer.Unavailable, NotReady)
	}
	if !l.settle(f.ID, answer) {
		return broke("kind", "READY of probe %d, which was not asked", f.ID)
	}
	return nil
}
