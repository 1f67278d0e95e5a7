package models_test

import (
	"context"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
)

// call sends a request as a model does during the execution of outer, and returns its last
// response.
func call(t *testing.T, b *fakeBackend, model string, outer *infer.Request) (*infer.Response, error) {
	t.Helper()
	answered := make(chan *infer.Response, 1) // the last response
	req := oneInput(model)
	req.Caller = infer.NewCaller(outer.Model, 1, []*infer.Request{outer}, true)
	target, err := b.lastEnv().Host.Target(model, infer.LatestVersion)
	if err != nil {
		return nil, err
	}
	defer target.Release()
	err = target.Submit(t.Context(), req, func(response *infer.Response) {
		if response.Final {
			answered <- response
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case response := <-answered:
		return response, nil
	case <-time.After(patience):
		t.Fatal("a call was not answered")
		return nil, nil
	}
}

// TestTargetOutlivesAReload checks that a target found before a reload of its model still sends
// requests to the old version.
func TestTargetOutlivesAReload(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}}), b, explicit("m"))
	h := b.lastEnv().Host
	old, err := h.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "m", configWith(t, "other", nil), nil); err != nil {
		t.Fatal(err)
	}
	successor, err := h.Target("m", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	for i, target := range []backend.Target{old, successor} {
		answered := make(chan int64, 1) // the generation of the version that served it
		err := target.Submit(t.Context(), oneInput("m"), func(response *infer.Response) { answered <- response.Parameters[0].Int })
		target.Release()
		if err != nil {
			t.Fatal(err)
		}
		if got := <-answered; got != int64(i+1) {
			t.Errorf("load %d served the request, want load %d", got, i+1)
		}
	}
}

// TestModelsCallOthersUntilTheEnd checks that requests between models are still served while the
// server exits.
func TestModelsCallOthersUntilTheEnd(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, nil)
	hold, answered := holdRequest(t, r, b)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	wantExiting(t, r)
	for range 3 {
		if response, err := call(t, b, "n", &infer.Request{Model: "m"}); err != nil || response.Err != nil {
			t.Errorf("a call while the server exits: %+v, %v", response, err)
		}
	}
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestUnloadingModelsRejectOnlyNewCalls unloads the calling or the called model during an
// execution and checks that only calls of the unloaded model are rejected.
func TestUnloadingModelsRejectOnlyNewCalls(t *testing.T) {
	for _, unloaded := range []string{"m", "n"} { // m makes the calls and is held
		t.Run(unloaded, func(t *testing.T) {
			b := newFakeBackend()
			r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, explicit("*"))
			hold, answered := holdRequest(t, r, b)
			if err := r.Unload(t.Context(), unloaded, false); err != nil {
				t.Fatal(err)
			}
			for _, model := range []string{"m", "n"} {
				if model == "m" && unloaded != "m" {
					continue // it would wait for the held request
				}
				response, err := call(t, b, model, &infer.Request{Model: "m"})
				switch {
				case model == unloaded:
					wantError(t, err, infer.NotFound, "Request for unknown model: '"+model+"' has no available versions")
				case err != nil || response.Err != nil:
					t.Errorf("a call of %s while %s is unloaded: %+v, %v", model, unloaded, response, err)
				}
			}
			close(hold)
			if err := <-answered; err != nil {
				t.Errorf("the request inside: %v", err)
			}
			awaitUnloaded(t, r, unloaded)
		})
	}
}

// TestCyclicCallsAreRejected checks that the models of a registry share one wait graph, so that a
// call that would close a cycle is rejected.
func TestCyclicCallsAreRejected(t *testing.T) {
	b := newFakeBackend()
	r := startRegistry(t, writeModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, nil)
	var held [2]*infer.Request
	var holds [2]chan<- struct{}
	answered := make(chan error, 2) // one value for each model
	for i, model := range []string{"m", "n"} {
		holds[i] = b.holdExecute(model + ":1")
		held[i] = oneInput(model)
		go func() { answered <- r.Infer(t.Context(), held[i], func(*infer.Response) {}) }()
		testkit.Eventually(t, patience, func() bool { return inFlight(r, model) == 1 })
	}
	waits := oneInput("n")
	waits.Caller = infer.NewCaller("m", 1, held[:1], true)
	done := make(chan *infer.Response, 1) // the last response
	target, err := b.lastEnv().Host.Target("n", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Submit(t.Context(), waits, func(response *infer.Response) { done <- response }); err != nil {
		t.Fatal(err)
	}
	target.Release()
	_, err = call(t, b, "m", held[1])
	wantError(t, err, infer.Unavailable, "Model 'm' cannot be called: every instance of it waits for this call (m → n → m)")
	close(holds[1])
	<-done
	close(holds[0])
	for range held {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}
