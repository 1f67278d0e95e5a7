package models_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// callingRegistry returns a registry in explicit mode that has these models. Its models can call
// their host while they start.
func callingRegistry(t *testing.T, threads int, names ...string) (*models.Registry, *fakeBackend) {
	t.Helper()
	all := make(map[string][]int64)
	for _, name := range names {
		all[name] = []int64{1}
	}
	b := newFakeBackend()
	r := newTestRegistry(t, writeModels(t, all), b, func(c *models.RegistryConfig) {
		c.Explicit, c.LoadThreads = true, threads
	})
	return r, b
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestLoadsFromLoadsNeedNoRoom checks that models can load other models while they are loaded, even
// if only one load may run at a time.
func TestLoadsFromLoadsNeedNoRoom(t *testing.T) {
	r, b := callingRegistry(t, 1, "a", "b", "c")
	b.starts["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "b", "", nil) }
	b.starts["b"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "c", "", nil) }
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "a", "b"} {
		all.Go(func() {
			if err := r.Load(ctx, name, "", nil); err != nil {
				t.Errorf("load %s: %v", name, err)
			}
		})
	}
	all.Wait()
	wantNoOperations(t, r)
}

// TestCyclicLoadsAreRejected checks that loads and unloads which would wait for themselves are
// rejected with an error that names the cycle.
func TestCyclicLoadsAreRejected(t *testing.T) {
	r, b := callingRegistry(t, 2, "a", "b", "c")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.starts["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "a", "", nil) }
	ctx := bounded(t)
	err := r.Load(ctx, "a", "", nil)
	if err == nil || !strings.Contains(err.Error(), "failed to load 'a', the load of 'a' waits for this call and would wait for itself: a -> a") {
		t.Errorf("got error %v", err)
	}
	b.starts["a"] = func(ctx context.Context, h backend.Host) error { return h.Unload(ctx, "a", false) }
	if err := r.Load(ctx, "a", "", nil); err == nil || !strings.Contains(err.Error(), "failed to unload 'a'") {
		t.Errorf("got error %v", err)
	}
	b.starts["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "b", "", nil) }
	b.starts["b"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "c", "", nil) }
	b.starts["c"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "a", "", nil) }
	if err := r.Load(ctx, "a", "", nil); err == nil || !strings.Contains(err.Error(), "itself: c -> a -> b -> c") {
		t.Errorf("got error %v", err)
	}
	wantNoOperations(t, r)
}

// TestModelMayLoadItselfAnew checks that a serving model can load and unload itself, and that both
// copies are closed.
func TestModelMayLoadItselfAnew(t *testing.T) {
	r, b := callingRegistry(t, 1, "a")
	ctx := bounded(t)
	h := hostOf(t, r, b, "a")
	if err := h.Load(ctx, "a", configWith(t, "other", nil), nil); err != nil {
		t.Errorf("load: %v", err)
	}
	if err := h.Unload(ctx, "a", false); err != nil {
		t.Errorf("unload: %v", err)
	}
	testkit.Eventually(t, patience, func() bool { return b.closedTimes("a:1") == 2 })
}

// hostOf starts a registry, loads a model and returns its host.
func hostOf(t *testing.T, r *models.Registry, b *fakeBackend, name string) backend.Host {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, r, name)
	return b.lastEnv().Host
}

// TestLoadIsGivenUp checks that a change that waits for another load fails when its context is
// cancelled.
func TestLoadIsGivenUp(t *testing.T) {
	r, b := callingRegistry(t, 2, "a", "slow")
	h := hostOf(t, r, b, "a")
	entered, leave := make(chan struct{}), make(chan struct{})
	b.starts["slow"] = func(context.Context, backend.Host) error {
		close(entered)
		<-leave
		return nil
	}
	slow := make(chan error, 1)
	go func() { slow <- r.Load(context.Background(), "slow", "", nil) }()
	<-entered
	for what, change := range map[string]func(context.Context) error{
		"load":   func(ctx context.Context) error { return h.Load(ctx, "slow", "", nil) },
		"unload": func(ctx context.Context) error { return h.Unload(ctx, "slow", false) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		outcome := make(chan error, 1)
		go func() { outcome <- change(ctx) }()
		cancel()
		if err := <-outcome; err == nil || !strings.Contains(err.Error(), "failed to "+what+" 'slow'") {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	close(leave)
	if err := <-slow; err != nil {
		t.Errorf("the load that was waited for: %v", err)
	}
}

func TestModelsQueryReadiness(t *testing.T) {
	b := newFakeBackend()
	b.starts["a"] = func(ctx context.Context, early backend.Host) error {
		_, err := early.ModelReady(ctx, "a", infer.LatestVersion)
		for what, err := range map[string]error{"load": early.Load(ctx, "a", "", nil), "unload": early.Unload(ctx, "a", false), "ready": err} {
			if err == nil || err.Error() != "Server not ready" {
				t.Errorf("%s at start: got error %v", what, err)
			}
		}
		return nil
	}
	startRegistry(t, writeModels(t, map[string][]int64{"a": {1}, "other": {1}}), b, explicit("a"))
	ctx, h := bounded(t), b.lastEnv().Host
	for _, tt := range []struct {
		model   string
		version int64
		ready   bool
		err     string
	}{
		{"a", infer.LatestVersion, true, ""}, {"a", 1, true, ""}, {"other", infer.LatestVersion, false, ""}, {"other", 1, false, ""},
		{"a", 2, false, "Request for unknown model: 'a' version 2 is not found"},
		{"nope", infer.LatestVersion, false, "Request for unknown model: 'nope' is not found"},
	} {
		ready, err := h.ModelReady(ctx, tt.model, tt.version)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if ready != tt.ready || text != tt.err {
			t.Errorf("%s version %d: got %v, error %q, want %v, %q", tt.model, tt.version, ready, text, tt.ready, tt.err)
		}
	}
}

// TestControlByModelsIsRefused checks that models cannot load or unload models unless the server is
// in explicit mode.
func TestControlByModelsIsRefused(t *testing.T) {
	b := newFakeBackend()
	startRegistry(t, writeModels(t, map[string][]int64{"a": {1}}), b, nil)
	h := b.lastEnv().Host
	for what, err := range map[string]error{"load": h.Load(t.Context(), "a", "", nil), "unload": h.Unload(t.Context(), "a", false)} {
		if err == nil || err.Error() != "explicit model load / unload is not allowed if polling is enabled" {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	if ready, err := h.ModelReady(t.Context(), "a", infer.LatestVersion); !ready || err != nil {
		t.Errorf("ready: got %v, error %v", ready, err)
	}
}
