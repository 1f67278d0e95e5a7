package models

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// fakeBackend opens models that respond with their generation: how often the model has been opened.
type fakeBackend struct {
	Mu        sync.Mutex
	Opened    map[string]int
	archives  map[string]string        // the last backend.Env.Environment of each model
	instances map[string]*fakeInstance // the last instance of each model
	failures  map[string]error         // the errors of Start, by name:version
	held      map[string]chan struct{}
	Closed    map[string]int
	unwell    error // the error of an instance's Ready
	asks      bool  // the value of AsksReady
	loading   int
	most      int // highest value of loading
}

func NewFakeBackend() *fakeBackend {
	return &fakeBackend{Opened: map[string]int{}, archives: map[string]string{}, instances: map[string]*fakeInstance{}, failures: map[string]error{}, held: map[string]chan struct{}{}, Closed: map[string]int{}}
}

func (b *fakeBackend) Open(env backend.Env) (backend.Model, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	key := fmt.Sprintf("%s:%d", env.Name, env.Version)
	b.Opened[key]++
	b.archives[key] = env.Environment
	return &fakeModel{backend: b, key: key, generation: b.Opened[key]}, nil
}

// instanceOf returns the instance of version 1 of a model that was started last.
func instanceOf(r *Registry, name string) *fakeInstance {
	return r.config.Backends["fake"].(interface {
		instance(key string) *fakeInstance
	}).instance(name + ":1")
}

func (b *fakeBackend) instance(key string) *fakeInstance {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.instances[key]
}

type fakeModel struct {
	backend    *fakeBackend
	key        string
	generation int
	instance   *fakeInstance
}

func (m *fakeModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (m *fakeModel) Start(_ context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	b := m.backend
	b.Mu.Lock()
	b.loading++
	b.most = max(b.most, b.loading)
	held, failure := b.held[m.key], b.failures[m.key]
	b.Mu.Unlock()
	if held != nil {
		<-held
	}
	b.Mu.Lock()
	b.loading--
	b.Mu.Unlock()
	if failure != nil {
		return failure
	}
	m.instance = &fakeInstance{model: m}
	b.Mu.Lock()
	b.instances[m.key] = m.instance
	b.Mu.Unlock()
	events.Available(m.instance)
	return nil
}

func (m *fakeModel) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{AsksReady: m.asksReady}
}

func (m *fakeModel) asksReady() bool {
	m.backend.Mu.Lock()
	defer m.backend.Mu.Unlock()
	return m.backend.asks
}

func (m *fakeModel) Instances() []backend.Instance { return []backend.Instance{m.instance} }

func (m *fakeModel) Close(context.Context) error {
	m.backend.Mu.Lock()
	defer m.backend.Mu.Unlock()
	m.backend.Closed[m.key]++
	return nil
}

type fakeInstance struct {
	model *fakeModel
	hold  chan struct{} // if set, executions wait until it is closed
}

func (i *fakeInstance) Name() string { return i.model.key }

func (i *fakeInstance) Ready(context.Context) error {
	i.model.backend.Mu.Lock()
	defer i.model.backend.Mu.Unlock()
	return i.model.backend.unwell
}

func (*fakeInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (i *fakeInstance) Execute(b *backend.Batch) {
	go func() {
		if i.hold != nil {
			<-i.hold
		}
		start := backend.Now()
		for _, task := range b.Tasks {
			task.Send(&infer.Response{Final: true, Parameters: []infer.Parameter{{Name: "generation", Kind: infer.IntParameter, Int: int64(i.model.generation)}}})
		}
		b.Done(b, backend.Report{Start: start, ComputeStart: start, ComputeEnd: start, End: start, Executed: true})
	}()
}

const FakeConfig = `backend: "fake"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
version_policy { all { } }
`

func WriteModels(t *testing.T, models map[string][]int64) string {
	t.Helper()
	files := make(map[string]string)
	for name, versions := range models {
		files[name+"/config.pbtxt"] = FakeConfig
		for _, v := range versions {
			files[fmt.Sprintf("%s/%d/", name, v)] = ""
		}
	}
	return testkit.WriteFiles(t, t.TempDir(), files)
}

func NewTestRegistry(t *testing.T, root string, b backend.Backend, change func(*RegistryConfig)) *Registry {
	t.Helper()
	opened, err := repository.Open([]string{root}, repository.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := RegistryConfig{
		Repository: opened, StrictReadiness: true,
		Settings: version.Settings{Backends: map[string]backend.Backend{"fake": b}, Metrics: metrics.New(metrics.Config{}), Log: zerolog.Nop()},
	}
	if change != nil {
		change(&config)
	}
	r := NewRegistry(config)
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		opened.Close()
	})
	return r
}

func Explicit(startup ...string) func(*RegistryConfig) {
	return func(c *RegistryConfig) { c.Explicit, c.Startup = true, startup }
}

// generation sends a request and returns the generation of the version that served it.
func generation(t *testing.T, r *Registry, name string, version int64) (int64, error) {
	t.Helper()
	got := int64(0)
	err := r.Infer(t.Context(), &infer.Request{
		Model: name, Version: version,
		Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)}},
	}, func(response *infer.Response) {
		if response.Err != nil {
			t.Errorf("%s: %v", name, response.Err)
			return
		}
		got = response.Parameters[0].Int
	})
	return got, err
}

func wantGeneration(t *testing.T, r *Registry, name string, version, want int64) {
	t.Helper()
	if got, err := generation(t, r, name, version); err != nil || got != want {
		t.Errorf("%s version %d: load %d answered, %v; want load %d", name, version, got, err, want)
	}
}

func WantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if e := infer.AsError(err); e == nil || e.Code != code || e.Message != text {
		t.Errorf("got %v (%T), want %v: %q", err, err, code, text)
	}
}

func states(r *Registry) string {
	var list []string
	index, err := r.Index(false)
	if err != nil {
		return err.Error()
	}
	for _, e := range index {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.GetName(), e.GetVersion(), e.GetState(), e.GetReason())))
	}
	return strings.Join(list, "; ")
}

func TestStartLoadsWhatItCan(t *testing.T) {
	b := NewFakeBackend()
	b.failures["bad:1"] = infer.Errorf(infer.Internal, "no such thing")
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"good": {1, 3}, "bad": {1}, "empty": {}}), b, nil)
	_, err := generation(t, r, "good", infer.LatestVersion)
	WantError(t, err, infer.Unavailable, "Server not ready")

	WantError(t, r.Start(t.Context()), infer.Internal, "failed to load all models")
	if got, want := states(r), "bad 1 UNAVAILABLE Internal: no such thing; good 1 READY; good 3 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
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
		WantError(t, err, lookup.code, lookup.text)
	}
}

func TestLoadsAreBoundedAndTriedAgain(t *testing.T) {
	b := NewFakeBackend()
	models := map[string][]int64{}
	for i := range 12 {
		models[fmt.Sprintf("m%d", i)] = []int64{1}
	}
	b.failures["m0:1"] = errors.New("never")
	r := NewTestRegistry(t, WriteModels(t, models), b, func(c *RegistryConfig) { c.LoadThreads, c.LoadRetries = 2, 3 })
	if err := r.Start(t.Context()); err == nil {
		t.Error("a model failed and Start did not")
	}
	if b.most > 2 {
		t.Errorf("%d versions were loaded at once, want 2 at most", b.most)
	}
	if b.Opened["m0:1"] != 4 || b.Opened["m1:1"] != 1 {
		t.Errorf("opened %d and %d times, want 4 and 1", b.Opened["m0:1"], b.Opened["m1:1"])
	}
}

func TestVersionsServeTogetherOrNotAtAll(t *testing.T) {
	b := NewFakeBackend()
	b.failures["m:2"] = infer.Errorf(infer.InvalidArg, "wrong")
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1, 2}}), b, Explicit())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	WantError(t, r.Load(t.Context(), "m", "", nil), infer.InvalidArg,
		"load failed for model 'm': version 2 is at UNAVAILABLE state: Invalid argument: wrong;\n")
	if got, want := states(r), "m 1 UNAVAILABLE unloaded; m 2 UNAVAILABLE Invalid argument: wrong"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	if b.Closed["m:1"] != 1 {
		t.Errorf("version 1 was closed %d times, want once", b.Closed["m:1"])
	}
}

// modify changes a file of a model.
func modify(t *testing.T, root, name string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(root, name, "notes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := file.WriteString("more\n")
	if err := errors.Join(werr, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestReloadKeepsServing(t *testing.T) {
	b := NewFakeBackend()
	root := WriteModels(t, map[string][]int64{"m": {1}})
	r := NewTestRegistry(t, root, b, Explicit("m"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGeneration(t, r, "m", 1, 1)
	if err := r.Load(t.Context(), "m", "", nil); err != nil {
		t.Error(err)
	}
	wantGeneration(t, r, "m", 1, 1) // no change, so no reload

	modify(t, root, "m")
	b.Mu.Lock()
	b.failures["m:1"] = infer.Errorf(infer.Internal, "worse")
	b.Mu.Unlock()
	if err := r.Load(t.Context(), "m", "", nil); err == nil {
		t.Error("the load that failed is a success")
	}
	wantGeneration(t, r, "m", 1, 1) // the old version still serves

	held := make(chan struct{})
	b.Mu.Lock()
	delete(b.failures, "m:1")
	b.held["m:1"] = held
	b.Mu.Unlock()
	loaded := make(chan error, 1) // one value
	go func() { loaded <- r.Load(t.Context(), "m", "", nil) }()
	wantGeneration(t, r, "m", 1, 1) // also while the next version is loading
	close(held)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	wantGeneration(t, r, "m", 1, 3)
	r.ending.Wait()
	if b.Closed["m:1"] != 2 { // the failed version and the first
		t.Errorf("closed %d times, want 2", b.Closed["m:1"])
	}
}

// holdRequest keeps a request in flight in version 1 of m until hold is closed. Its error is then
// sent to answered.
func holdRequest(t *testing.T, r *Registry) (hold chan struct{}, answered <-chan error) {
	t.Helper()
	hold = make(chan struct{})
	instanceOf(r, "m").hold = hold
	result := make(chan error, 1) // one value
	go func() {
		_, err := generation(t, r, "m", 1)
		result <- err
	}()
	testkit.Eventually(t, Patience, func() bool { return len(r.InFlight()) > 0 })
	return hold, result
}

func TestUnloadTakesModelsOutOfService(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, Explicit("*"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold, answered := holdRequest(t, r)
	if err := r.Unload(t.Context(), "m", false); err != nil {
		t.Fatal(err)
	}
	if got, want := states(r), "m 1 UNLOADING; n 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	_, err := generation(t, r, "m", 1)
	WantError(t, err, infer.Unavailable, "Request for unknown model: 'm' version 1 is not at ready state")
	_, err = generation(t, r, "m", infer.LatestVersion)
	WantError(t, err, infer.NotFound, "Request for unknown model: 'm' has no available versions")
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	r.ending.Wait()
	if got, want := states(r), "m 1 UNAVAILABLE unloaded; n 1 READY"; got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
	if ready, err := r.Ready(t.Context()); !ready || err != nil {
		t.Errorf("ready %v, %v: an unloaded model does not count", ready, err)
	}
	if err := r.Unload(t.Context(), "none", false); err != nil {
		t.Errorf("unloading what is not there: %v", err)
	}
	WantError(t, r.Load(t.Context(), "none", "", nil), infer.Internal, "failed to load 'none', failed to poll from model repository")
}

// TestSchedulingChoicesLoad loads models with all kinds of schedulers.
func TestSchedulingChoicesLoad(t *testing.T) {
	root := WriteModels(t, map[string][]int64{"batched": {1}, "controlled": {1}, "iterative": {1}, "sequence": {1}, "stateful": {1}})
	for name, more := range map[string]string{
		"batched":  "max_batch_size: 4 dynamic_batching { }",
		"sequence": "sequence_batching { }",
		"controlled": "sequence_batching { iterative_sequence: true control_input [ { name: \"START\" control [ " +
			"{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }",
		"stateful":  "sequence_batching { iterative_sequence: true state [ { input_name: \"S\" output_name: \"T\" data_type: TYPE_INT32 dims: [ 1 ] } ] }",
		"iterative": "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 4 } }",
	} {
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(FakeConfig+more), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := NewTestRegistry(t, root, NewFakeBackend(), nil)
	if err := r.Start(t.Context()); err != nil {
		t.Error(err)
	}
	const want = "batched 1 READY; controlled 1 READY; iterative 1 READY; sequence 1 READY; stateful 1 READY"
	if got := states(r); got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
}

func TestControlIsRefused(t *testing.T) {
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), NewFakeBackend(), nil)
	const text = "explicit model load / unload is not allowed if polling is enabled"
	WantError(t, r.Load(t.Context(), "m", "", nil), infer.Unavailable, text)
	WantError(t, r.Unload(t.Context(), "m", false), infer.Unavailable, text)
}

func TestReadinessFollowsInstances(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), b, nil)
	if ready, _ := r.Ready(t.Context()); ready {
		t.Error("ready before anything was loaded")
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, unwell := range []error{nil, errors.New("lost")} {
		b.Mu.Lock()
		b.unwell = unwell
		b.Mu.Unlock()
		if ready, err := r.Ready(t.Context()); ready != (unwell == nil) || err != nil {
			t.Errorf("instances say %v: ready %v, %v", unwell, ready, err)
		}
		if ready, err := r.ModelReady(t.Context(), "m", 1); ready != (unwell == nil) || err != nil {
			t.Errorf("instances say %v: model ready %v, %v", unwell, ready, err)
		}
	}
}

func TestStatisticsCountRequests(t *testing.T) {
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), NewFakeBackend(), nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wantGeneration(t, r, "m", 1, 1)
	}
	var s *kserve.ModelStatistics
	testkit.Eventually(t, Patience, func() bool { // counted when the execution ends, which is after the response
		list, err := r.Statistics("m", infer.LatestVersion)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		s = list[0]
		return s.GetInferenceCount() >= 3
	})
	if s.GetInferenceCount() != 3 || s.GetExecutionCount() != 3 || s.GetInferenceStats().GetSuccess().GetCount() != 3 ||
		s.GetInferenceStats().GetFail().GetCount() != 0 || len(s.GetBatchStats()) != 1 || s.GetBatchStats()[0].GetBatchSize() != 1 {
		t.Errorf("got %v", s)
	}
	_, err := r.Statistics("none", infer.LatestVersion)
	WantError(t, err, infer.InvalidArg, "requested model 'none' is not available")
	_, err = r.Statistics("m", 2)
	WantError(t, err, infer.InvalidArg, "requested model version is not available for model 'm'")
}

func TestShutdownWaitsForRequests(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}, "n": {1}}), b, nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold, answered := holdRequest(t, r)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	var err error
	testkit.Eventually(t, Patience, func() bool {
		_, err = r.Live()
		return err != nil
	})
	WantError(t, err, infer.Unavailable, "Server exiting")
	_, err = generation(t, r, "n", 1)
	WantError(t, err, infer.Unavailable, "Server exiting")
	close(hold)
	if err := <-answered; err != nil {
		t.Errorf("the request inside: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if b.Closed["m:1"] != 1 || b.Closed["n:1"] != 1 {
		t.Errorf("closed %v, want each once", b.Closed)
	}
}

// TestHostTellsWhetherReadinessIsAsked checks that a target tells whether its model reports its own
// readiness, and that ModelReady follows that report.
func TestHostTellsWhetherReadinessIsAsked(t *testing.T) {
	b := NewFakeBackend()
	r := NewTestRegistry(t, WriteModels(t, map[string][]int64{"m": {1}}), b, nil)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, asks := range []bool{false, true} {
		b.Mu.Lock()
		b.asks, b.unwell = asks, nil
		if asks {
			b.unwell = errors.New("unwell")
		}
		b.Mu.Unlock()
		target, err := host{Registry: r}.Target("m", infer.LatestVersion)
		if err != nil {
			t.Fatal(err)
		}
		if target.Decoupled() || target.AsksReady() != asks || (target.Ready(t.Context()) != nil) != asks {
			t.Errorf("got decoupled %v, asks %v, ready: %v", target.Decoupled(), target.AsksReady(), target.Ready(t.Context()))
		}
		target.Release()
		if ready, err := (host{Registry: r}).ModelReady(t.Context(), "m", 1); ready == asks || err != nil {
			t.Errorf("ModelReady: got %v, %v, want %v", ready, err, !asks)
		}
	}
	if _, err := (host{Registry: r}).Target("n", infer.LatestVersion); err == nil {
		t.Error("Target of an unknown model: got no error")
	}
}

// TestShutdownEndsEachCopyOnce shuts the server down during a reload and checks that both copies of
// the version are closed once.
func TestShutdownEndsEachCopyOnce(t *testing.T) {
	b := NewFakeBackend()
	root := WriteModels(t, map[string][]int64{"m": {1}})
	r := NewTestRegistry(t, root, b, Explicit("m"))
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	b.Mu.Lock()
	b.held["m:1"] = held
	b.Mu.Unlock()
	modify(t, root, "m")
	loaded := make(chan error, 1) // one value
	go func() { loaded <- r.Load(context.Background(), "m", "", nil) }()
	testkit.Eventually(t, Patience, func() bool {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		return b.loading == 1
	})
	// A request keeps the old copy open until the load is over.
	hold, answered := holdRequest(t, r)
	ended := make(chan error, 1) // one value
	go func() { ended <- r.Shutdown(context.Background()) }()
	testkit.Eventually(t, Patience, r.loader.Exiting)
	close(held)
	WantError(t, <-loaded, infer.Unavailable, "Server exiting")
	close(hold)
	if err := errors.Join(<-answered, <-ended); err != nil {
		t.Error(err)
	}
	r.ending.Wait()
	if b.Opened["m:1"] != 2 || b.Closed["m:1"] != 2 {
		t.Errorf("opened %d times and closed %d times, want 2 and 2", b.Opened["m:1"], b.Closed["m:1"])
	}
}
