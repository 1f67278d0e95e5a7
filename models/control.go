package models

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
)

// host is what the instances of one version see of the registry.
type host struct {
	*Registry
	bringing *bringing
}

var _ backend.Host = host{}

// bringing is a version that is being brought up. Its code may ask for models to
// be loaded, and the load of its own model waits for its code.
type bringing struct {
	model string
	slot  func() // gives up the place among those that are loaded at once

	mu   sync.Mutex
	over bool
}

// end says that the version is up, or will not be.
func (b *bringing) end() {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
}

func (b *bringing) isOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// Load implements backend.Host.
func (h host) Load(ctx context.Context, model, config string, files map[string][]byte) error {
	done, err := h.change(model, "load")
	if err != nil {
		return err
	}
	defer done()
	return h.Registry.Load(ctx, model, config, files)
}

// Unload implements backend.Host.
func (h host) Unload(ctx context.Context, model string, dependents bool) error {
	done, err := h.change(model, "unload")
	if err != nil {
		return err
	}
	defer done()
	return h.Registry.Unload(ctx, model, dependents)
}

// change begins a change that the code of a model asks for. While that model is
// being loaded itself, its load waits for the change: one that would wait for
// that load in turn is refused.
func (h host) change(model, what string) (done func(), err error) {
	if !h.started.Load() {
		return nil, infer.Errorf(infer.Unavailable, "Server not ready")
	}
	done = func() {}
	if h.bringing.isOver() {
		return done, nil
	}
	// Whoever waits must not keep others from being loaded: it may be them that it
	// waits for.
	h.bringing.slot()
	from := h.bringing.model
	h.mu.Lock()
	defer h.mu.Unlock()
	if way := h.wayLocked(model, from, nil); way != nil {
		return nil, infer.Errorf(infer.Unavailable, "failed to %s '%s', the load of '%s' waits for this call and would wait for itself: %s",
			what, model, from, strings.Join(append([]string{from}, way...), " -> "))
	}
	if h.waits[from] == nil {
		h.waits[from] = make(map[string]int)
	}
	h.waits[from][model]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.waits[from][model]--; h.waits[from][model] == 0 {
			delete(h.waits[from], model)
		}
		if len(h.waits[from]) == 0 {
			delete(h.waits, from)
		}
	}, nil
}

// wayLocked finds over which models the load of one waits for that of another;
// each waits for itself.
func (r *Registry) wayLocked(from, to string, passed map[string]bool) []string {
	if from == to {
		return []string{to}
	}
	if passed == nil {
		passed = make(map[string]bool)
	}
	passed[from] = true
	for next := range r.waits[from] {
		if passed[next] {
			continue
		}
		if way := r.wayLocked(next, to, passed); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// ModelReady implements backend.Host. A model that is known but not loaded is not
// ready, which is what models ask before they load it.
func (h host) ModelReady(ctx context.Context, model string, number int64) (bool, error) {
	if !h.started.Load() {
		return false, infer.Errorf(infer.Unavailable, "Server not ready")
	}
	ready, err := h.Registry.ModelReady(ctx, model, number)
	var own *infer.Error
	if errors.As(err, &own) && !h.exiting.Load() && h.knows(model, number) {
		return false, nil
	}
	return ready, err
}

// knows reports whether there is such a version, or may be: of a model that was
// never loaded, nobody has looked.
func (r *Registry) knows(name string, number int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.models[name]
	if m == nil {
		return false
	}
	return number == infer.LatestVersion || len(m.versions) == 0 || m.versions[number] != nil
}

// lock waits until nobody else changes the model.
func (m *model) lock(ctx context.Context) error {
	select {
	case m.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *model) unlock() { <-m.changing }
