package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/models"
	"github.com/nereid-serving/nereid/models/repository"
	"github.com/nereid-serving/nereid/models/version"
)

// patience is the time that a test waits for an event.
const patience = time.Minute

// fakeBackend opens models that return their inputs as outputs, IN as OUT, and their generation:
// how often the version has been opened. Its maps have keys like "m:1" unless said otherwise.
type fakeBackend struct {
	mu             sync.Mutex
	opened, closed map[string]int
	envs           map[string]backend.Env   // of the last Open of each version
	last           backend.Env              // of the last Open
	instances      map[string]*fakeInstance // the last instance of each version
	failures       map[string]error         // the errors of Start
	held           map[string]chan struct{} // Start waits until it is closed
	// starts, by model name, are called by Start.
	starts   map[string]func(ctx context.Context, host backend.Host) error
	unwell   error  // the error of an instance's Ready
	asks     bool   // the value of AsksReady
	fault    string // the method that panics: "Open", "Start", "Execute" or "Close"
	executed string // the directory of the model that has executed last
	loading  int
	most     int // highest value of loading
}

func newFakeBackend() *fakeBackend {
	return &fakeBackend{
		opened: make(map[string]int), closed: make(map[string]int), envs: make(map[string]backend.Env), instances: make(map[string]*fakeInstance),
		failures: make(map[string]error), held: make(map[string]chan struct{}), starts: make(map[string]func(context.Context, backend.Host) error),
	}
}

func (b *fakeBackend) Open(env backend.Env) (backend.Model, error) {
	b.panicsAt("Open")
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fmt.Sprintf("%s:%d", env.Name, env.Version)
	b.opened[key]++
	b.envs[key], b.last = env, env
	return &fakeModel{backend: b, key: key, env: env, generation: b.opened[key], start: b.starts[env.Name]}, nil
}

// fails sets the method that panics, or "".
func (b *fakeBackend) fails(method string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = method
}

func (b *fakeBackend) panicsAt(method string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == method {
		panic("a bug in " + method)
	}
}

// openedTimes returns how often a version has been opened.
func (b *fakeBackend) openedTimes(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened[key]
}

// closedTimes returns how often a version has been closed.
func (b *fakeBackend) closedTimes(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed[key]
}

// lastEnv returns the environment of the version that was opened last.
func (b *fakeBackend) lastEnv() backend.Env {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// holdStart makes loads of a version wait until the channel is closed.
func (b *fakeBackend) holdStart(key string) chan<- struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[key] = make(chan struct{})
	return b.held[key]
}

// isLoading reports whether one version is being loaded.
func (b *fakeBackend) isLoading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loading == 1
}

// knows reports whether the registry has a record of a version, as it tells models.
func (b *fakeBackend) knows(t *testing.T, name string, number int64) bool {
	t.Helper()
	_, err := b.lastEnv().Host.ModelReady(t.Context(), name, number)
	return err == nil
}

// holdExecute makes executions of the last instance of a version wait until the channel is closed.
func (b *fakeBackend) holdExecute(key string) chan<- struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold := make(chan struct{})
	b.instances[key].hold = hold
	return hold
}

type fakeModel struct {
	backend    *fakeBackend
	key        string
	env        backend.Env
	generation int
	start      func(context.Context, backend.Host) error
	instance   *fakeInstance
}

func (m *fakeModel) AutoComplete(context.Context, []byte) ([]byte, error) { return nil, nil }

func (m *fakeModel) Start(ctx context.Context, _ *kserve.ModelConfig, _ []byte, events backend.Events) error {
	b := m.backend
	b.panicsAt("Start")
	if m.start != nil {
		if err := m.start(ctx, m.env.Host); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.loading++
	b.most = max(b.most, b.loading)
	held, failure := b.held[m.key], b.failures[m.key]
	b.mu.Unlock()
	if held != nil {
		<-held
	}
	b.mu.Lock()
	b.loading--
	b.mu.Unlock()
	if failure != nil {
		return failure
	}
	m.instance = &fakeInstance{model: m}
	b.mu.Lock()
	b.instances[m.key] = m.instance
	b.mu.Unlock()
	events.Available(m.instance)
	return nil
}

func (m *fakeModel) Capabilities() backend.ModelCapabilities {
	return backend.ModelCapabilities{AsksReady: m.asksReady}
}

func (m *fakeModel) asksReady() bool {
	m.backend.mu.Lock()
	defer m.backend.mu.Unlock()
	return m.backend.asks
}

func (m *fakeModel) Instances() []backend.Instance { return []backend.Instance{m.instance} }

func (m *fakeModel) Close(context.Context) error {
	defer m.backend.panicsAt("Close")
	m.backend.mu.Lock()
	defer m.backend.mu.Unlock()
	m.backend.closed[m.key]++
	return nil
}

type fakeInstance struct {
	model *fakeModel
	hold  chan struct{} // if set, executions wait until it is closed
}

func (i *fakeInstance) Name() string { return i.model.key }

func (i *fakeInstance) Ready(context.Context) error {
	i.model.backend.mu.Lock()
	defer i.model.backend.mu.Unlock()
	return i.model.backend.unwell
}

func (*fakeInstance) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (i *fakeInstance) Execute(b *backend.Batch) {
	i.model.backend.panicsAt("Execute")
	i.model.backend.mu.Lock()
	i.model.backend.executed = i.model.env.Directory
	hold := i.hold
	i.model.backend.mu.Unlock()
	go func() {
		if hold != nil {
			<-hold
		}
		responses := make([]*infer.Response, len(b.Tasks))
		for n, task := range b.Tasks {
			responses[n] = &infer.Response{Final: true, Parameters: []infer.Parameter{{Name: "generation", Kind: infer.IntParameter, Int: int64(i.model.generation)}}}
			for _, in := range task.Request.Inputs {
				in.Name = strings.Replace(in.Name, "IN", "OUT", 1)
				responses[n].Outputs = append(responses[n].Outputs, in)
			}
		}
		start := backend.Now()
		b.Done(b, backend.Report{Start: start, ComputeStart: start + 1_000, ComputeEnd: start + 3_000, End: start + 6_000, Executed: true})
		for n, task := range b.Tasks {
			task.Send(responses[n])
		}
	}()
}

const fakeConfig = `backend: "fake"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
version_policy { all { } }
`

// writeModels writes a repository of fake models and their versions.
func writeModels(t *testing.T, versions map[string][]int64) string {
	t.Helper()
	files := make(map[string]string)
	for name, numbers := range versions {
		files[name+"/config.pbtxt"] = fakeConfig
		for _, v := range numbers {
			files[fmt.Sprintf("%s/%d/", name, v)] = ""
		}
	}
	return testkit.WriteFiles(t, t.TempDir(), files)
}

func writeConfig(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var rewrites atomic.Int64

// rewrite writes a file and gives it a new modification time. Two quick writes can otherwise have
// the same time and size, and the change is missed.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	changed := time.Now().Add(time.Duration(rewrites.Add(1)) * time.Second)
	if err := os.Chtimes(path, changed, changed); err != nil {
		t.Fatal(err)
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

// configWith returns the JSON of a config with the parameter "tag" and further fields.
func configWith(t *testing.T, tag string, more map[string]any) string {
	t.Helper()
	config := map[string]any{
		"backend": "fake", "parameters": map[string]any{"tag": map[string]any{"string_value": tag}},
		"input":          []any{map[string]any{"name": "IN", "data_type": "TYPE_INT32", "dims": []int{1}}},
		"output":         []any{map[string]any{"name": "OUT", "data_type": "TYPE_INT32", "dims": []int{1}}},
		"version_policy": map[string]any{"all": map[string]any{}},
	}
	for key, value := range more {
		config[key] = value
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func newTestRegistry(t *testing.T, root string, b backend.Backend, change func(*models.RegistryConfig)) *models.Registry {
	t.Helper()
	config := models.RegistryConfig{
		StrictReadiness: true,
		Settings:        version.Settings{Backends: map[string]backend.Backend{"fake": b}, Metrics: metrics.New(metrics.Config{}), Log: zerolog.Nop()},
	}
	open(t, &config, repository.Options{}, root)
	if change != nil {
		change(&config)
	}
	r := models.NewRegistry(config)
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		config.Repository.Close()
	})
	return r
}

// open replaces the repositories of a registry.
func open(t *testing.T, c *models.RegistryConfig, options repository.Options, roots ...string) {
	t.Helper()
	opened, err := repository.Open(roots, options)
	if err != nil {
		t.Fatal(err)
	}
	if c.Repository != nil {
		c.Repository.Close()
	}
	c.Repository = opened
}

// startRegistry returns a registry that has loaded its models.
func startRegistry(t *testing.T, root string, b backend.Backend, change func(*models.RegistryConfig)) *models.Registry {
	t.Helper()
	r := newTestRegistry(t, root, b, change)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// namespaced makes a registry use these repositories with namespaces.
func namespaced(t *testing.T, roots ...string) func(*models.RegistryConfig) {
	return func(c *models.RegistryConfig) { open(t, c, repository.Options{Namespacing: true}, roots...) }
}

func explicit(startup ...string) func(*models.RegistryConfig) {
	return func(c *models.RegistryConfig) { c.Explicit, c.Startup = true, startup }
}

func mustLoad(t *testing.T, r *models.Registry, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := r.Load(t.Context(), name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// unload unloads a model and waits until its versions have ended.
func unload(t *testing.T, r *models.Registry, name string, dependents bool) {
	t.Helper()
	if err := r.Unload(t.Context(), name, dependents); err != nil {
		t.Fatal(err)
	}
	awaitUnloaded(t, r, name)
}

func awaitUnloaded(t *testing.T, r *models.Registry, name string) {
	t.Helper()
	if err := r.AwaitUnloaded(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// oneInput returns a request with one input for the latest version of a fake model.
func oneInput(model string) *infer.Request {
	return &infer.Request{Model: model, Version: infer.LatestVersion, Inputs: []infer.Tensor{
		{Name: "IN", DataType: infer.Int32, Shape: []int64{1}, Data: make([]byte, 4)},
	}}
}

// generation sends a request and returns the generation of the version that served it.
func generation(t *testing.T, r *models.Registry, name string, number int64) (int64, error) {
	t.Helper()
	got, req := int64(0), oneInput(name)
	req.Version = number
	err := r.Infer(t.Context(), req, func(response *infer.Response) {
		if response.Err != nil {
			t.Errorf("%s: %v", name, response.Err)
			return
		}
		got = response.Parameters[0].Int
	})
	return got, err
}

func wantGeneration(t *testing.T, r *models.Registry, name string, number, want int64) {
	t.Helper()
	if got, err := generation(t, r, name, number); err != nil || got != want {
		t.Errorf("%s version %d: load %d answered, %v; want load %d", name, number, got, err, want)
	}
}

// holdRequest keeps a request in flight in version 1 of m until hold is closed. Its error is then
// sent to answered.
func holdRequest(t *testing.T, r *models.Registry, b *fakeBackend) (hold chan<- struct{}, answered <-chan error) {
	t.Helper()
	hold = b.holdExecute("m:1")
	result := make(chan error, 1) // one value
	go func() {
		_, err := generation(t, r, "m", 1)
		result <- err
	}()
	testkit.Eventually(t, patience, func() bool { return len(r.InFlight()) > 0 })
	return hold, result
}

func wantError(t *testing.T, err error, code infer.Code, text string) {
	t.Helper()
	if e := infer.AsError(err); e == nil || e.Code != code || e.Message != text {
		t.Errorf("got %v (%T), want %v: %q", err, err, code, text)
	}
}

// wantExiting waits until the server refuses requests because it is exiting.
func wantExiting(t *testing.T, r *models.Registry) {
	t.Helper()
	var err error
	testkit.Eventually(t, patience, func() bool {
		_, err = r.Live()
		return err != nil
	})
	wantError(t, err, infer.Unavailable, "Server exiting")
}

// wantNoOperations fails the test if an operation is left.
func wantNoOperations(t *testing.T, r *models.Registry) {
	t.Helper()
	if locked, running, waiting := r.Operations(); locked+running+waiting != 0 {
		t.Errorf("%d models are locked, %d operations run and %d wait", locked, running, waiting)
	}
}

// states returns the index.
func states(r *models.Registry) string {
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

func wantStates(t *testing.T, r *models.Registry, want string) {
	t.Helper()
	if got := states(r); got != want {
		t.Errorf("got the index %q, want %q", got, want)
	}
}
