package models_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/version"
)

const (
	echoConfig = `backend: "fake"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] label_filename: "labels" } ]
version_policy { all { } }
`
	chainConfig = `platform: "ensemble"
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "B" data_type: TYPE_INT32 dims: [ 1 ] label_filename: "own" } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "X" } },
  { model_name: "second" model_version: 1 input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "B" } } ] }
model_transaction_policy { decoupled: true }
`
)

// ensembleRegistry returns a registry with two models and an ensemble of both, "chain". None of
// them is loaded.
func ensembleRegistry(t *testing.T, b *fakeBackend) (r *models.Registry, root string) {
	t.Helper()
	root = testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"first/config.pbtxt": echoConfig, "first/labels": "zero\none\n", "first/1/keep": "", "first/2/keep": "",
		"second/config.pbtxt": echoConfig, "second/labels": "null\neins\n", "second/1/keep": "",
		"chain/config.pbtxt": chainConfig, "chain/own": "no\nyes\n", "chain/3/keep": "",
	})
	return startRegistry(t, root, b, explicit()), root
}

func askChain(ctx context.Context, r *models.Registry) (*infer.Response, error) {
	var last *infer.Response
	err := r.Infer(ctx, &infer.Request{Model: "chain", Version: infer.LatestVersion, ID: "q", Inputs: []infer.Tensor{
		{Name: "A", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}},
	}}, func(response *infer.Response) { last = response })
	return last, err
}

// TestEnsembleIsLoaded checks an ensemble's config, labels, readiness, response and statistics.
func TestEnsembleIsLoaded(t *testing.T) {
	r, _ := ensembleRegistry(t, newFakeBackend())
	mustLoad(t, r, "chain") // also loads its composing models
	info, err := r.Model("chain", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	if info.Platform() != "ensemble" || info.Decoupled() || !strings.Contains(string(info.JSON), `"model_transaction_policy":{"decoupled":false}`) ||
		!strings.Contains(string(info.JSON), `"instance_group":[]`) {
		t.Errorf("platform %s, config %s", info.Platform(), info.JSON)
	}
	want := map[string][]string{"X": {"zero", "one"}, "B": {"no", "yes"}}
	if !maps.EqualFunc(info.Labels, want, slices.Equal) {
		t.Errorf("got labels %v, want %v", info.Labels, want)
	}
	if ready, err := r.ModelReady(t.Context(), "chain", infer.LatestVersion); !ready || err != nil {
		t.Errorf("the ensemble is not ready: %v, %v", ready, err)
	}

	response, err := askChain(t.Context(), r)
	if err != nil || response.Err != nil {
		t.Fatal(err, response.Err)
	}
	if response.Model != "chain" || response.Version != 3 || response.ID != "q" || len(response.Outputs) != 2 || response.Outputs[1].Data[0] != 7 || len(response.Parameters) != 3 {
		t.Errorf("got %+v", response)
	}
	list, err := r.Statistics("chain", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	s := list[0].GetInferenceStats()
	if list[0].GetExecutionCount() != 1 || list[0].GetInferenceCount() != 1 || s.GetSuccess().GetCount() != 1 || s.GetQueue().GetCount() != 1 ||
		s.GetComputeInput().GetNs() != 2*1_000 || s.GetComputeInfer().GetNs() != 2*2_000 || s.GetComputeOutput().GetNs() != 2*3_000 {
		t.Errorf("the steps cost 1, 2 and 3 us each; got %v", list[0])
	}
	if own, _ := r.Statistics("first", 2); own[0].GetExecutionCount() != 1 {
		t.Errorf("the latest version of the first step was executed %d times, want 1", own[0].GetExecutionCount())
	}
}

// inFlight returns the number of requests in flight in a model.
func inFlight(r *models.Registry, name string) (n int) {
	for info, count := range r.InFlight() {
		if info.Name == name {
			n += count
		}
	}
	return n
}

// TestEnsembleHoldsItsModels checks that a version stays usable for an ensemble's request in flight
// although it is being unloaded.
func TestEnsembleHoldsItsModels(t *testing.T) {
	b := newFakeBackend()
	r, _ := ensembleRegistry(t, b)
	mustLoad(t, r, "first", "second", "chain")
	hold := b.holdExecute("first:2")
	answered := make(chan string, 1) // one value
	go func() {
		response, err := askChain(context.Background(), r)
		switch {
		case err != nil:
			answered <- err.Error()
		case response.Err != nil:
			answered <- response.Err.Message
		default:
			answered <- ""
		}
	}()
	second, err := r.Target("second", 1)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool { return inFlight(r, "first") == 1 })
	if err := r.Unload(t.Context(), "second", false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Target("second", 1); err == nil {
		t.Error("a model that is being unloaded accepts requests")
	}
	testkit.Eventually(t, patience, func() bool { // until the version refuses new holders
		h, can := second.(*version.Version).Hold()
		if can {
			h.Release()
		}
		return !can
	})
	close(hold)
	if text := <-answered; text != "" {
		t.Errorf("the request inside: %s", text)
	}
	awaitUnloaded(t, r, "second")
	if response, err := askChain(t.Context(), r); err == nil && response.Err == nil {
		t.Error("the ensemble answers although one of its models is not there")
	}
}

// TestFailedLoadOfAnEnsembleKeepsRequests checks that a failed load of an ensemble does not disturb
// a request in flight in the version that is being unloaded.
func TestFailedLoadOfAnEnsembleKeepsRequests(t *testing.T) {
	b := newFakeBackend()
	r, root := ensembleRegistry(t, b)
	mustLoad(t, r, "chain")
	hold := b.holdExecute("first:2")
	answered := make(chan error, 1)
	go func() {
		_, err := askChain(t.Context(), r)
		answered <- err
	}()
	testkit.Eventually(t, patience, func() bool { return len(r.InFlight()) == 2 }) // the ensemble and one step
	if err := r.Unload(t.Context(), "chain", false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "chain", "own")); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), "chain", "", nil); err == nil {
		t.Error("an ensemble without its labels was loaded")
	}
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	awaitUnloaded(t, r, "chain")
}
