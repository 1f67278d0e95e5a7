package models_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
)

func TestStartContinuesAfterFailedLoads(t *testing.T) {
	b := newFakeBackend()
	b.failures["bad:1"] = infer.Errorf(infer.Internal, "no such thing")
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"good": {1, 3}, "bad": {1}, "empty": {}}), b, nil)
	_, err := generation(t, r, "good", infer.LatestVersion)
	wantError(t, err, infer.Unavailable, "Server not ready")

	wantError(t, r.Start(t.Context()), infer.Internal, "failed to load all models")
	wantStates(t, r, "bad 1 UNAVAILABLE Internal: no such thing; good 1 READY; good 3 READY")
	var rows []string
	for _, s := range r.Attempted() {
		rows = append(rows, fmt.Sprintf("%s %d %s", s.Name, s.Version, s.State))
	}
	if got, want := strings.Join(rows, "; "), "bad 1 UNAVAILABLE; empty 0 ; good 1 READY; good 3 READY"; got != want {
		t.Errorf("got the table %q, want %q", got, want)
	}
	wantGeneration(t, r, "good", infer.LatestVersion, 1)
	if info, err := r.Model("good", infer.LatestVersion); err != nil || info.Version != 3 {
		t.Errorf("the latest version is %+v, %v, want 3", info, err)
	}
	if ready, err := r.Ready(t.Context()); ready || err != nil {
		t.Errorf("ready %v, %v although models failed", ready, err)
	}
	for _, lookup := range []struct {
		name    string
		version int64
		code    infer.Code
		text    string
	}{
		{"none", infer.LatestVersion, infer.NotFound, "Request for unknown model: 'none' is not found"},
		{"empty", infer.LatestVersion, infer.NotFound, "Request for unknown model: 'empty' has no available versions"},
		{"good", 2, infer.NotFound, "Request for unknown model: 'good' version 2 is not found"},
		{"bad", infer.LatestVersion, infer.NotFound, "Request for unknown model: 'bad' has no available versions"},
		{"bad", 1, infer.Unavailable, "Request for unknown model: 'bad' version 1 is not at ready state"},
	} {
		_, err := r.Model(lookup.name, lookup.version)
		wantError(t, err, lookup.code, lookup.text)
	}
}

func TestLoadsAreBoundedAndTriedAgain(t *testing.T) {
	b := newFakeBackend()
	versions := make(map[string][]int64)
	for i := range 12 {
		versions[fmt.Sprintf("m%d", i)] = []int64{1}
	}
	b.failures["m0:1"] = errors.New("never")
	r := newTestRegistry(t, writeModels(t, versions), b, func(c *models.RegistryConfig) { c.LoadThreads, c.LoadRetries = 2, 3 })
	if err := r.Start(t.Context()); err == nil {
		t.Error("a model failed and Start did not")
	}
	if b.most > 2 {
		t.Errorf("%d versions were loaded at once, want 2 at most", b.most)
	}
	if b.opened["m0:1"] != 4 || b.opened["m1:1"] != 1 {
		t.Errorf("opened %d and %d times, want 4 and 1", b.opened["m0:1"], b.opened["m1:1"])
	}
}

func TestVersionsServeTogetherOrNotAtAll(t *testing.T) {
	b := newFakeBackend()
	b.failures["m:2"] = infer.Errorf(infer.InvalidArg, "wrong")
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1, 2}}), b, explicit())
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg,
		"load failed for model 'm': version 2 is at UNAVAILABLE state: Invalid argument: wrong;\n")
	wantStates(t, r, "m 1 UNAVAILABLE unloaded; m 2 UNAVAILABLE Invalid argument: wrong")
	if b.closed["m:1"] != 1 {
		t.Errorf("version 1 was closed %d times, want once", b.closed["m:1"])
	}
}

func TestReloadKeepsServing(t *testing.T) {
	b := newFakeBackend()
	root := writeModels(t, map[string][]int64{"m": {1}})
	r := startRegistry(t, root, b, explicit("m"))
	wantGeneration(t, r, "m", 1, 1)
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Error(err)
	}
	wantGeneration(t, r, "m", 1, 1) // no change, so no reload

	modify(t, root, "m")
	b.mu.Lock()
	b.failures["m:1"] = infer.Errorf(infer.Internal, "worse")
	b.mu.Unlock()
	if err := r.Load(t.Context(), "m", "", nil); err == nil {
		t.Error("the load that failed is a success")
	}
	wantGeneration(t, r, "m", 1, 1) // the old version still serves

	b.mu.Lock()
	delete(b.failures, "m:1")
	b.mu.Unlock()
	held := b.holdStart("m:1")
	loaded := make(chan error, 1) // one value
	go func() { loaded <- r.Load(t.Context(), "m", "", nil) }()
	wantGeneration(t, r, "m", 1, 1) // also while the next version is loading
	close(held)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	wantGeneration(t, r, "m", 1, 3)
	testkit.Eventually(t, patience, func() bool { return b.closedTimes("m:1") == 2 }) // the failed version and the first
}

func TestUnloadTakesModelsOutOfService(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, explicit("*"))
	hold, answered := holdRequest(t, r, b)
	if err := r.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	wantStates(t, r, "m 1 UNLOADING; n 1 READY")
	_, err := generation(t, r, "m", 1)
	wantError(t, err, infer.Unavailable, "Request for unknown model: 'm' version 1 is not at ready state")
	_, err = generation(t, r, "m", infer.LatestVersion)
	wantError(t, err, infer.NotFound, "Request for unknown model: 'm' has no available versions")
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	awaitUnloaded(t, r, "m")
	wantStates(t, r, "m 1 UNAVAILABLE unloaded; n 1 READY")
	if ready, err := r.Ready(t.Context()); !ready || err != nil {
		t.Errorf("ready %v, %v: an unloaded model does not count", ready, err)
	}
	if err := r.Unload(t.Context(), "none", false); err != nil {
		t.Errorf("unloading what is not there: %v", err)
	}
	wantError(t, r.Load(t.Context(), "none", "", nil), infer.Internal, "failed to load 'none', failed to poll from model repository")
}

// TestSchedulingChoicesLoad loads models with all kinds of schedulers.
func TestSchedulingChoicesLoad(t *testing.T) {
	root := writeModels(t, map[string][]int64{"batched": {1}, "controlled": {1}, "iterative": {1}, "sequence": {1}, "stateful": {1}})
	for name, more := range map[string]string{
		"batched":  "max_batch_size: 4 dynamic_batching { }",
		"sequence": "sequence_batching { }",
		"controlled": "sequence_batching { iterative_sequence: true control_input [ { name: \"START\" control [ " +
			"{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }",
		"stateful":  "sequence_batching { iterative_sequence: true state [ { input_name: \"S\" output_name: \"T\" data_type: TYPE_INT32 dims: [ 1 ] } ] }",
		"iterative": "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 4 } }",
	} {
		writeConfig(t, root, name, fakeConfig+more)
	}
	r := newTestRegistry(t, root, newFakeBackend(), nil)
	if err := r.Start(t.Context()); err != nil {
		t.Error(err)
	}
	const want = "batched 1 READY; controlled 1 READY; iterative 1 READY; sequence 1 READY; stateful 1 READY"
	if got := states(r); got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
}

func TestControlIsRefused(t *testing.T) {
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), nil)
	const text = "explicit model load / unload is not allowed if polling is enabled"
	wantError(t, r.Load(t.Context(), "m", "", nil), infer.Unavailable, text)
	wantError(t, r.Unload(t.Context(), "m", false), infer.Unavailable, text)
}

func TestReadinessFollowsInstances(t *testing.T) {
	b := newFakeBackend()
	r := newTestRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, nil)
	if ready, _ := r.Ready(t.Context()); ready {
		t.Error("ready before anything was loaded")
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, unwell := range []error{nil, errors.New("lost")} {
		b.mu.Lock()
		b.unwell = unwell
		b.mu.Unlock()
		if ready, err := r.Ready(t.Context()); ready != (unwell == nil) || err != nil {
			t.Errorf("instances say %v: ready %v, %v", unwell, ready, err)
		}
		if ready, err := r.ModelReady(t.Context(), "m", 1); ready != (unwell == nil) || err != nil {
			t.Errorf("instances say %v: model ready %v, %v", unwell, ready, err)
		}
	}
}

func TestStatisticsCountRequests(t *testing.T) {
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), newFakeBackend(), nil)
	for range 3 {
		wantGeneration(t, r, "m", 1, 1)
	}
	list, err := r.Statistics("m", infer.LatestVersion)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	s := list[0]
	if s.GetInferenceCount() != 3 || s.GetExecutionCount() != 3 || s.GetInferenceStats().GetSuccess().GetCount() != 3 ||
		s.GetInferenceStats().GetFail().GetCount() != 0 || len(s.GetBatchStats()) != 1 || s.GetBatchStats()[0].GetBatchSize() != 1 {
		t.Errorf("got %v", s)
	}
	_, err = r.Statistics("none", infer.LatestVersion)
	wantError(t, err, infer.InvalidArg, "requested model 'none' is not available")
	_, err = r.Statistics("m", 2)
	wantError(t, err, infer.InvalidArg, "requested model version is not available for model 'm'")
}

func TestShutdownWaitsForRequests(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, nil)
	hold, answered := holdRequest(t, r, b)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	wantExiting(t, r)
	_, err := generation(t, r, "n", 1)
	wantError(t, err, infer.Unavailable, "Server exiting")
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if b.closed["m:1"] != 1 || b.closed["n:1"] != 1 {
		t.Errorf("closed %v, want each once", b.closed)
	}
}

// TestHostTellsWhetherReadinessIsAsked checks that a target tells whether its model reports its own
// readiness, and that ModelReady follows that report.
func TestHostTellsWhetherReadinessIsAsked(t *testing.T) {
	b := newFakeBackend()
	startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, nil)
	host := b.lastEnv().Host
	for _, asks := range []bool{false, true} {
		b.mu.Lock()
		b.asks, b.unwell = asks, nil
		if asks {
			b.unwell = errors.New("unwell")
		}
		b.mu.Unlock()
		target, err := host.Target("m", infer.LatestVersion)
		if err != nil {
			t.Fatal(err)
		}
		if target.Decoupled() || target.AsksReady() != asks || (target.Ready(t.Context()) != nil) != asks {
			t.Errorf("got decoupled %v, asks %v, ready: %v", target.Decoupled(), target.AsksReady(), target.Ready(t.Context()))
		}
		target.Release()
		if ready, err := host.ModelReady(t.Context(), "m", 1); ready == asks || err != nil {
			t.Errorf("ModelReady: got %v, %v, want %v", ready, err, !asks)
		}
	}
	if _, err := host.Target("n", infer.LatestVersion); err == nil {
		t.Error("Target of an unknown model: got no error")
	}
}

// TestShutdownEndsEachCopyOnce shuts the server down during a reload and checks that both copies of
// the version are closed once.
func TestShutdownEndsEachCopyOnce(t *testing.T) {
	b := newFakeBackend()
	root := writeModels(t, map[string][]int64{"m": {1}})
	r := startRegistry(t, root, b, explicit("m"))
	held := b.holdStart("m:1")
	modify(t, root, "m")
	loaded := make(chan error, 1) // one value
	go func() { loaded <- r.Load(context.Background(), "m", "", nil) }()
	testkit.Eventually(t, patience, b.isLoading)
	// A request keeps the old copy open until the load is over.
	hold, answered := holdRequest(t, r, b)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	wantExiting(t, r)
	close(held)
	wantError(t, <-loaded, infer.Unavailable, "Server exiting")
	close(hold)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
	if b.opened["m:1"] != 2 || b.closed["m:1"] != 2 {
		t.Errorf("opened %d times and closed %d times, want 2 and 2", b.opened["m:1"], b.closed["m:1"])
	}
}
