package models

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models/repository"
)

// emptyRegistry starts a registry in explicit mode with an empty repository.
func emptyRegistry(t *testing.T, b *fakeBackend) *Registry {
	t.Helper()
	r := NewTestRegistry(t, t.TempDir(), b, Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestALoadIsAHolderOfMemory checks that the account lists a load in progress under the name of its
// model, with the memory of its config.
func TestALoadIsAHolderOfMemory(t *testing.T) {
	account, b := budget.New(budget.Config{Limit: 256 << 20}), NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), b, func(c *RegistryConfig) { c.Explicit, c.Memory = true, account })
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	holders := func() (list []string) {
		account.Holders(func(h *budget.Holder) bool {
			if h.Held(budget.JSON) > 0 {
				list = append(list, h.Name())
			}
			return true
		})
		return list
	}
	held := make(chan struct{})
	b.held["m:1"] = held
	loaded := make(chan error, 1) // one value
	go func() { loaded <- r.Load(t.Context(), "m", ConfigWith(t, "", nil), nil) }()
	testkit.Eventually(t, Patience, func() bool { return slices.Equal(holders(), []string{`load of model "m"`}) })
	close(held)
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	if list := holders(); len(list) != 0 {
		t.Errorf("%q hold memory after the load", list)
	}
}

// TestModelsComeAndGoWithTheirRepositories registers repositories under other model names than
// their directories have, loads a model and an ensemble from them, unloads the ensemble and
// unregisters its repository.
func TestModelsComeAndGoWithTheirRepositories(t *testing.T) {
	b := NewFakeBackend()
	r := emptyRegistry(t, b)
	single, several := WriteModels(t, map[string][]int64{"model": {1}}), WriteModels(t, map[string][]int64{"member": {1}, "both": {1}})
	writeConfig(t, several, "both", ensembleOf("member"))
	for path, names := range map[string][2]string{single: {"model", "first"}, several: {"both", "second"}} {
		if err := r.RegisterRepository(path, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"first", "second"} {
		if err := r.Load(t.Context(), name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := states(r), "first 1 READY; member 1 READY; second 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	wantGeneration(t, r, "first", 1, 1)
	if err := r.Unload(t.Context(), "second", true); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "member", "unknown"} {
		if err := r.AwaitUnloaded(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.UnregisterRepository(several); err != nil {
		t.Fatal(err)
	}
	if got, want := states(r), "first 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	WantError(t, r.Load(t.Context(), "second", "", nil), infer.Internal, "failed to load 'second', failed to poll from model repository")
}

// TestUnregisteredModelsAreForgotten checks that unloaded models leave the catalog when their
// repository is unregistered, including the members of an ensemble. Models that serve, have a
// directory or failed to load stay.
func TestUnregisteredModelsAreForgotten(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"own": {1}}), b, Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.failures["bad:1"] = errors.New("no")
	several := WriteModels(t, map[string][]int64{"member": {1}, "both": {1}})
	writeConfig(t, several, "both", ensembleOf("member"))
	for path, names := range map[string][2]string{
		several: {"both", "ensemble"}, WriteModels(t, map[string][]int64{"model": {1}}): {"model", "good"},
		WriteModels(t, map[string][]int64{"dir": {1}}): {"dir", "bad"}, WriteModels(t, map[string][]int64{"here": {1}}): {"here", "serving"},
	} {
		if err := r.RegisterRepository(path, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(t.Context(), names[1], "", nil); (err != nil) != (names[1] == "bad") {
			t.Fatal(err)
		}
		if names[1] != "serving" {
			if err := r.Unload(t.Context(), names[1], true); err != nil {
				t.Fatal(err)
			}
			if err := r.AwaitUnloaded(t.Context(), names[1]); err != nil {
				t.Fatal(err)
			}
		}
		if names[1] == "ensemble" {
			if err := r.AwaitUnloaded(t.Context(), "member"); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.UnregisterRepository(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, known := range map[string]bool{"own": true, "bad": true, "serving": true, "good": false, "ensemble": false, "member": false} {
		if got := r.catalog.Knows(name, infer.LatestVersion); got != known {
			t.Errorf("the catalog knows %s: %v, want %v", name, got, known)
		}
	}
}

// TestForgottenModelsComeBack concurrently registers, loads, requests, unloads and unregisters
// models of two names, and checks that the catalog and the locks are empty at the end.
func TestForgottenModelsComeBack(t *testing.T) {
	b := NewFakeBackend()
	r := emptyRegistry(t, b)
	names := [2]string{"a", "b"}
	var all sync.WaitGroup
	for i := range 6 {
		name, path := names[i%2], WriteModels(t, map[string][]int64{"dir": {1}})
		all.Go(func() {
			for range 30 {
				if i >= 2 {
					// The directory may or may not be registered now.
					_ = r.Load(t.Context(), name, "", nil)
					_, _ = generation(t, r, name, 1)
					_ = r.Unload(t.Context(), name, true)
					continue
				}
				if err := r.RegisterRepository(path, "dir", name); err != nil {
					t.Error(err)
				}
				if err := r.Load(t.Context(), name, "", nil); err != nil {
					t.Error(err)
				}
				if err := r.Unload(t.Context(), name, true); err != nil {
					t.Error(err)
				}
				if err := r.UnregisterRepository(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	last := t.TempDir()
	for _, name := range names {
		if err := r.Unload(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
		if err := r.AwaitUnloaded(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RegisterRepository(last, "x", "y"); err != nil {
		t.Fatal(err)
	}
	if err := r.UnregisterRepository(last); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if r.catalog.Knows(name, infer.LatestVersion) {
			t.Errorf("the catalog knows %s", name)
		}
	}
	if locked, running, waiting := r.locks.Counts(); locked+running+waiting != 0 {
		t.Errorf("%d models are locked, %d operations under way, %d wait", locked, running, waiting)
	}
}

// TestAwaitUnloadedWaitsForRequests checks that AwaitUnloaded waits for requests, even if the
// unload began before the call.
func TestAwaitUnloadedWaitsForRequests(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), b, nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	ended := make(chan error, 1)
	v, err := r.lookup("m", 1)
	if err != nil {
		t.Fatal(err)
	}
	inside, _ := v.Hold()
	r.catalog.RetireAll()
	go func() {
		ended <- r.AwaitUnloaded(t.Context(), "m")
		close(held)
	}()
	short, stop := context.WithCancelCause(t.Context())
	stop(errors.New("impatient"))
	if err := r.AwaitUnloaded(short, "m"); err == nil || err.Error() != "impatient" {
		t.Errorf("got error %v, want that of the context", err)
	}
	select {
	case <-held:
		t.Error("the wait ended before the request")
	default:
	}
	inside.Release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got, want := states(r), "m 1 UNAVAILABLE unloaded"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	testkit.Eventually(t, time.Minute, func() bool { return b.Closed["m:1"] == 1 })
}

// TestAFailedLoadLeavesTheNameFree checks that, with namespaces, a model that failed to load does
// not make its name ambiguous after it has been unloaded and unregistered.
func TestAFailedLoadLeavesTheNameFree(t *testing.T) {
	b := NewFakeBackend()
	empty := t.TempDir()
	r := NewTestRegistry(t, empty, b, func(c *RegistryConfig) {
		c.Explicit = true
		c.Repository.Close()
		opened, err := repository.Open([]string{empty}, repository.Options{Namespacing: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(opened.Close)
		c.Repository = opened
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad, good := WriteModels(t, map[string][]int64{"dir": {1}}), WriteModels(t, map[string][]int64{"dir": {1}})
	if err := r.RegisterRepository(bad, "dir", "m"); err != nil {
		t.Fatal(err)
	}
	b.failures["m:1"] = infer.Errorf(infer.Internal, "no")
	WantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg,
		"load failed for model '"+bad+"::m': version 1 is at UNAVAILABLE state: Internal: no;\n")
	if err := r.Unload(t.Context(), "m", true); err != nil {
		t.Fatal(err)
	}
	if err := r.UnregisterRepository(bad); err != nil {
		t.Fatal(err)
	}
	delete(b.failures, "m:1")
	if err := r.RegisterRepository(good, "dir", "m"); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Target("m", infer.LatestVersion); err != nil {
		t.Error(err)
	}
}

func TestRegistrationsAreRefusedByTheMode(t *testing.T) {
	root := WriteModels(t, map[string][]int64{"m": {1}})
	r := NewTestRegistry(t, root, NewFakeBackend(), nil)
	WantError(t, r.RegisterRepository(root, "m", "x"), infer.Unsupported, "repository registration is not allowed if model control mode is not EXPLICIT")
	WantError(t, r.UnregisterRepository(root), infer.Unsupported, "repository unregistration is not allowed if model control mode is not EXPLICIT")
	r = NewTestRegistry(t, root, NewFakeBackend(), Explicit())
	WantError(t, r.RegisterRepository(root, "m", "x"), infer.AlreadyExists, "model repository '"+root+"' has already been registered")
	WantError(t, r.UnregisterRepository(root), infer.InvalidArg, "failed to unregister '"+root+"', repository not found")
	r.StopChanges()
	WantError(t, r.RegisterRepository(root, "m", "x"), infer.Unavailable, "Server exiting")
}
