package models

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/models/repository"
)

// echoBackend opens models that return their inputs as outputs, IN as OUT and so on. If hold is
// set, executions wait until it is closed.
type echoBackend struct{ hold chan struct{} }

func (b *echoBackend) Open(env backend.Env) (backend.Model, error) {
	return &echoModel{backend: b, name: env.Name}, nil
}

type echoModel struct {
	backend *echoBackend
	name    string
}

func (m *echoModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (m *echoModel) Start(_ context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	events.Available(echoInstance{m})
	return nil
}

func (m *echoModel) Instances() []backend.Instance { return []backend.Instance{echoInstance{m}} }
func (m *echoModel) Close(context.Context) error   { return nil }
func (m *echoModel) Name() string                  { return m.name }
func (m *echoModel) Ready(context.Context) error   { return nil }

func (m *echoModel) Capabilities() backend.ModelCapabilities { return backend.ModelCapabilities{} }

type echoInstance struct{ *echoModel }

func (echoInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (m echoInstance) Execute(b *backend.Batch) {
	go func() {
		if m.backend.hold != nil {
			<-m.backend.hold
		}
		var answers []*infer.Response
		for _, task := range b.Tasks {
			r := &infer.Response{Final: true}
			for _, in := range task.Request.Inputs {
				in.Name = strings.Replace(in.Name, "IN", "OUT", 1)
				r.Outputs = append(r.Outputs, in)
			}
			answers = append(answers, r)
		}
		b.Done(b, backend.Report{Start: 1_000, ComputeStart: 2_000, ComputeEnd: 4_000, End: 7_000, Executed: true})
		for i, task := range b.Tasks {
			task.Send(answers[i])
		}
	}()
}

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
func ensembleRegistry(t *testing.T, b *echoBackend) *Registry {
	t.Helper()
	root := testkit.WriteFiles(t, t.TempDir(), map[string]string{
		"first/config.pbtxt": echoConfig, "first/labels": "zero\none\n", "first/1/keep": "", "first/2/keep": "",
		"second/config.pbtxt": echoConfig, "second/labels": "null\neins\n", "second/1/keep": "",
		"chain/config.pbtxt": chainConfig, "chain/own": "no\nyes\n", "chain/3/keep": "",
	})
	r := NewTestRegistry(t, root, b, Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func mustLoad(t *testing.T, r *Registry, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := r.Load(t.Context(), name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
}

func askChain(ctx context.Context, r *Registry) (*infer.Response, error) {
	var last *infer.Response
	err := r.Infer(ctx, &infer.Request{Model: "chain", Version: infer.LatestVersion, ID: "q", Inputs: []infer.Tensor{
		{Name: "A", DataType: infer.Int32, Shape: []int64{1}, Data: []byte{7, 0, 0, 0}},
	}}, func(response *infer.Response) { last = response })
	return last, err
}

// TestEnsembleIsLoaded checks an ensemble's config, labels, readiness, response and statistics.
func TestEnsembleIsLoaded(t *testing.T) {
	r := ensembleRegistry(t, &echoBackend{})
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

// TestEnsembleHoldsItsModels checks that a version stays usable for an ensemble's request in flight
// although it is being unloaded.
func TestEnsembleHoldsItsModels(t *testing.T) {
	b := &echoBackend{hold: make(chan struct{})}
	r := ensembleRegistry(t, b)
	mustLoad(t, r, "first", "second", "chain")
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
	first, err := r.lookup("first", infer.LatestVersion)
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.lookup("second", 1)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, Patience, func() bool { return first.InFlight() == 1 })
	if err := r.Unload(t.Context(), "second", false); err != nil {
		t.Fatal(err)
	}
	if _, err := (view{r}).Hold(repository.Identity{Name: "second"}, 1); err == nil {
		t.Error("a model that is being unloaded can be held")
	}
	testkit.Eventually(t, Patience, func() bool { return Ends(second) })
	close(b.hold)
	if text := <-answered; text != "" {
		t.Errorf("the request inside: %s", text)
	}
	r.ending.Wait()
	if response, err := askChain(t.Context(), r); err == nil && response.Err == nil {
		t.Error("the ensemble answers although one of its models is not there")
	}
}
