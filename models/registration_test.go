package models_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

// emptyRegistry starts a registry in explicit mode with an empty repository.
func emptyRegistry(t *testing.T, b *fakeBackend) *models.Registry {
	t.Helper()
	r := startRegistry(t, t.TempDir(), b, explicit())
	return r
}

// TestALoadIsAHolderOfMemory checks that the account lists a load in progress under the name of its
// model, with the memory of its config.
func TestALoadIsAHolderOfMemory(t *testing.T) {
	account, b := budget.New(budget.Config{Limit: 256 << 20}), newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, func(c *models.RegistryConfig) { c.Explicit, c.Memory = true, account })
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
	go func() { loaded <- r.Load(t.Context(), "m", configWith(t, "", nil), nil) }()
	testkit.Eventually(t, patience, func() bool { return slices.Equal(holders(), []string{`load of model "m"`}) })
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
	b := newFakeBackend()
	r := emptyRegistry(t, b)
	single, several := writeModels(t, map[string][]int64{"model": {1}}), writeModels(t, map[string][]int64{"member": {1}, "both": {1}})
	writeConfig(t, several, "both", ensembleOf("member"))
	for path, names := range map[string][2]string{single: {"model", "first"}, several: {"both", "second"}} {
		if err := r.RegisterRepository(path, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"first", "second"} {
		mustLoad(t, r, name)
	}
	wantStates(t, r, "first 1 READY; member 1 READY; second 1 READY")
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
	wantStates(t, r, "first 1 READY")
	wantError(t, r.Load(t.Context(), "second", "", nil), infer.Internal, "failed to load 'second', failed to poll from model repository")
}

// TestUnregisteredModelsAreForgotten checks that unloaded models leave the catalog when their
// repository is unregistered, including the members of an ensemble. Models that serve, have a
// directory or failed to load stay.
func TestUnregisteredModelsAreForgotten(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"own": {1}}), b, explicit())
	b.failures["bad:1"] = errors.New("no")
	several := writeModels(t, map[string][]int64{"member": {1}, "both": {1}})
	writeConfig(t, several, "both", ensembleOf("member"))
	for path, names := range map[string][2]string{
		several: {"both", "ensemble"}, writeModels(t, map[string][]int64{"model": {1}}): {"model", "good"},
		writeModels(t, map[string][]int64{"dir": {1}}): {"dir", "bad"}, writeModels(t, map[string][]int64{"here": {1}}): {"here", "serving"},
	} {
		if err := r.RegisterRepository(path, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(t.Context(), names[1], "", nil); (err != nil) != (names[1] == "bad") {
			t.Fatal(err)
		}
		if names[1] != "serving" {
			unload(t, r, names[1], true)
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
		if got := b.knows(t, name, infer.LatestVersion); got != known {
			t.Errorf("the catalog knows %s: %v, want %v", name, got, known)
		}
	}
}

// TestForgottenModelsComeBack concurrently registers, loads, requests, unloads and unregisters
// models of two names, and checks that the catalog and the locks are empty at the end.
func TestForgottenModelsComeBack(t *testing.T) {
	b := newFakeBackend()
	r := emptyRegistry(t, b)
	names := [2]string{"a", "b"}
	var all sync.WaitGroup
	for i := range 6 {
		name, path := names[i%2], writeModels(t, map[string][]int64{"dir": {1}})
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
		unload(t, r, name, true)
	}
	if err := r.RegisterRepository(last, "x", "y"); err != nil {
		t.Fatal(err)
	}
	if err := r.UnregisterRepository(last); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b.knows(t, name, infer.LatestVersion) {
			t.Errorf("the catalog knows %s", name)
		}
	}
	wantNoOperations(t, r)
}

// TestAwaitUnloadedWaitsForRequests checks that AwaitUnloaded waits for requests, even if the
// unload began before the call.
func TestAwaitUnloadedWaitsForRequests(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, explicit("m"))
	hold, answered := holdRequest(t, r, b)
	if err := r.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.AwaitUnloaded(t.Context(), "m") }()
	short, stop := context.WithCancelCause(t.Context())
	stop(errors.New("impatient"))
	if err := r.AwaitUnloaded(short, "m"); err == nil || err.Error() != "impatient" {
		t.Errorf("got error %v, want that of the context", err)
	}
	if len(ended) > 0 {
		t.Error("the wait ended before the request")
	}
	close(hold)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
	wantStates(t, r, "m 1 UNAVAILABLE unloaded")
	testkit.Eventually(t, patience, func() bool { return b.closedTimes("m:1") == 1 })
}

// TestAFailedLoadLeavesTheNameFree checks that, with namespaces, a model that failed to load does
// not make its name ambiguous after it has been unloaded and unregistered.
func TestAFailedLoadLeavesTheNameFree(t *testing.T) {
	b := newFakeBackend()
	empty := t.TempDir()
	r := startRegistry(t, empty, b, func(c *models.RegistryConfig) {
		namespaced(t, empty)(c)
		c.Explicit = true
	})
	bad, good := writeModels(t, map[string][]int64{"dir": {1}}), writeModels(t, map[string][]int64{"dir": {1}})
	if err := r.RegisterRepository(bad, "dir", "m"); err != nil {
		t.Fatal(err)
	}
	b.failures["m:1"] = infer.Errorf(infer.Internal, "no")
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg,
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
	mustLoad(t, r, "m")
	if _, err := r.Target("m", infer.LatestVersion); err != nil {
		t.Error(err)
	}
}

func TestRegistrationsAreRefusedByTheMode(t *testing.T) {
	root := writeModels(t, map[string][]int64{"m": {1}})
	r := newTestRegistry(t, root, newFakeBackend(), nil)
	wantError(t, r.RegisterRepository(root, "m", "x"), infer.Unsupported, "repository registration is not allowed if model control mode is not EXPLICIT")
	wantError(t, r.UnregisterRepository(root), infer.Unsupported, "repository unregistration is not allowed if model control mode is not EXPLICIT")
	r = newTestRegistry(t, root, newFakeBackend(), explicit())
	wantError(t, r.RegisterRepository(root, "m", "x"), infer.AlreadyExists, "model repository '"+root+"' has already been registered")
	wantError(t, r.UnregisterRepository(root), infer.InvalidArg, "failed to unregister '"+root+"', repository not found")
	r.StopChanges()
	wantError(t, r.RegisterRepository(root, "m", "x"), infer.Unavailable, "Server exiting")
}
