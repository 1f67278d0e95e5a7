package models

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
)

// callingBackend opens models that call their host while they start.
type callingBackend struct {
	*fakeBackend
	mu    sync.Mutex
	start map[string]func(ctx context.Context, host backend.Host) error // by model name
	hosts map[string]backend.Host
}

func (b *callingBackend) Open(env backend.Env) (backend.Model, error) {
	m, err := b.fakeBackend.Open(env)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hosts[env.Name] = env.Host
	return &callingModel{Model: m, host: env.Host, start: b.start[env.Name]}, err
}

type callingModel struct {
	backend.Model
	host  backend.Host
	start func(context.Context, backend.Host) error
}

func (m *callingModel) Start(ctx context.Context, config *kserve.ModelConfig, json []byte, events backend.Events) error {
	if m.start != nil {
		if err := m.start(ctx, m.host); err != nil {
			return err
		}
	}
	return m.Model.Start(ctx, config, json, events)
}

func callingRegistry(t *testing.T, threads int, names ...string) (*Registry, *callingBackend) {
	t.Helper()
	all := make(map[string][]int64)
	for _, name := range names {
		all[name] = []int64{1}
	}
	b := &callingBackend{fakeBackend: NewFakeBackend(), start: make(map[string]func(context.Context, backend.Host) error), hosts: make(map[string]backend.Host)}
	r := NewTestRegistry(t, WriteModels(t, all), b, func(c *RegistryConfig) {
		c.Explicit, c.LoadThreads = true, threads
	})
	return r, b
}

// wantNoOperations fails the test if an operation is left.
func wantNoOperations(t *testing.T, r *Registry) {
	t.Helper()
	if locked, running, waiting := r.locks.Counts(); locked+running+waiting != 0 {
		t.Errorf("%d models are locked, %d operations run and %d wait", locked, running, waiting)
	}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// TestLoadsFromLoadsNeedNoRoom checks that models can load other models while they are loaded, even
// if only one load may run at a time.
func TestLoadsFromLoadsNeedNoRoom(t *testing.T) {
	r, b := callingRegistry(t, 1, "a", "b", "c")
	b.start["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "b", "", nil) }
	b.start["b"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "c", "", nil) }
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

// TestLoadsThatWaitForThemselves checks that loads and unloads which would wait for themselves are
// rejected with an error that names the cycle.
func TestLoadsThatWaitForThemselves(t *testing.T) {
	r, b := callingRegistry(t, 2, "a", "b", "c")
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.start["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "a", "", nil) }
	ctx := bounded(t)
	err := r.Load(ctx, "a", "", nil)
	if err == nil || !strings.Contains(err.Error(), "failed to load 'a', the load of 'a' waits for this call and would wait for itself: a -> a") {
		t.Errorf("got error %v", err)
	}
	b.start["a"] = func(ctx context.Context, h backend.Host) error { return h.Unload(ctx, "a", false) }
	if err := r.Load(ctx, "a", "", nil); err == nil || !strings.Contains(err.Error(), "failed to unload 'a'") {
		t.Errorf("got error %v", err)
	}
	b.start["a"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "b", "", nil) }
	b.start["b"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "c", "", nil) }
	b.start["c"] = func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "a", "", nil) }
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
	if err := b.hostAfter(r, t, "a"); err != nil {
		t.Fatal(err)
	}
	h := b.hosts["a"]
	if err := h.Load(ctx, "a", ConfigWith(t, "other", nil), nil); err != nil {
		t.Errorf("load: %v", err)
	}
	if err := h.Unload(ctx, "a", false); err != nil {
		t.Errorf("unload: %v", err)
	}
	testkit.Eventually(t, Patience, func() bool {
		b.fakeBackend.Mu.Lock()
		defer b.fakeBackend.Mu.Unlock()
		return b.Closed["a:1"] == 2
	})
}

// hostAfter starts the registry and loads a model, so that its host is known.
func (b *callingBackend) hostAfter(r *Registry, t *testing.T, name string) error {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.Load(bounded(t), name, "", nil)
}

// TestLoadIsGivenUp checks that a change that waits for another load fails when its context is
// cancelled.
func TestLoadIsGivenUp(t *testing.T) {
	r, b := callingRegistry(t, 2, "a", "slow")
	if err := b.hostAfter(r, t, "a"); err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	b.start["slow"] = func(context.Context, backend.Host) error {
		close(entered)
		<-leave
		return nil
	}
	slow := make(chan error, 1)
	go func() { slow <- r.Load(context.Background(), "slow", "", nil) }()
	<-entered
	for what, change := range map[string]func(context.Context, backend.Host) error{
		"load":   func(ctx context.Context, h backend.Host) error { return h.Load(ctx, "slow", "", nil) },
		"unload": func(ctx context.Context, h backend.Host) error { return h.Unload(ctx, "slow", false) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		outcome := make(chan error, 1)
		go func() { outcome <- change(ctx, b.hosts["a"]) }()
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

func TestModelsAskWhetherModelsAreReady(t *testing.T) {
	r, b := callingRegistry(t, 2, "a", "other")
	ctx := bounded(t)
	early := host{r, &loadInProgress{model: "a", slot: func() {}}}
	for what, err := range map[string]error{
		"load": early.Load(ctx, "a", "", nil), "unload": early.Unload(ctx, "a", false),
		"ready": func() error { _, err := early.ModelReady(ctx, "a", infer.LatestVersion); return err }(),
	} {
		if err == nil || err.Error() != "Server not ready" {
			t.Errorf("%s at start: got error %v", what, err)
		}
	}
	if err := b.hostAfter(r, t, "a"); err != nil {
		t.Fatal(err)
	}
	h := b.hosts["a"]
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
	b := &callingBackend{fakeBackend: NewFakeBackend(), start: make(map[string]func(context.Context, backend.Host) error), hosts: make(map[string]backend.Host)}
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"a": {1}}), b, nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := b.hosts["a"]
	for what, err := range map[string]error{"load": h.Load(t.Context(), "a", "", nil), "unload": h.Unload(t.Context(), "a", false)} {
		if err == nil || err.Error() != "explicit model load / unload is not allowed if polling is enabled" {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	if ready, err := h.ModelReady(t.Context(), "a", infer.LatestVersion); !ready || err != nil {
		t.Errorf("ready: got %v, error %v", ready, err)
	}
}
