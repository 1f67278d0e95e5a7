package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/backend/process"
	"github.com/nereid-serving/nereid/backend/python"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/kserve"
	"github.com/nereid-serving/nereid/metrics"
	"github.com/nereid-serving/nereid/pyutils"
	"github.com/nereid-serving/nereid/shm"
	"github.com/nereid-serving/nereid/stub"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// patience bounds every wait of these tests. It is long enough for a busy machine.
const patience = 60 * time.Second

// fixture is a backend with real stubs, its log and its counts. The stubs run Python models, which
// put the most stress on a process and can misbehave in the most ways.
type fixture struct {
	t          testing.TB
	supervisor *process.Supervisor
	backend    *python.Backend
	pool       *shm.Pool
	log        *testkit.Buffer
	printed    [2]*testkit.Buffer // stdout and stderr
	counts     *counts
	host       backend.Host
}

// counts records the backend's reports.
type counts struct {
	mu      sync.Mutex
	started int
	lost    int
	again   int
	causes  []string       // of losses
	broken  map[string]int // by rule
	custom  *metrics.Registry
}

func (c *counts) Custom(model string) *metrics.Holder { return c.custom.Custom(model) }

func (c *counts) StubStarted(string)   { c.add(&c.started) }
func (c *counts) StubRestarted(string) { c.add(&c.again) }
func (c *counts) StubLost(_, cause string) {
	c.mu.Lock()
	c.lost++
	c.causes = append(c.causes, cause)
	c.mu.Unlock()
}

func (c *counts) add(n *int) {
	c.mu.Lock()
	*n++
	c.mu.Unlock()
}

func (c *counts) ProtocolError(rule string) {
	c.mu.Lock()
	c.broken[rule]++
	c.mu.Unlock()
}

func (c *counts) of(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}

// brokenRules returns how often each rule was broken.
func (c *counts) brokenRules() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	rules := make(map[string]int)
	for rule, n := range c.broken {
		rules[rule] = n
	}
	return rules
}

// newFixture returns a backend for the newest Python. change, if not nil, edits its config first.
// The test fails if it leaves blocks in the pool.
func newFixture(t testing.TB, change func(*python.Config)) *fixture {
	t.Helper()
	return newFixtureWith(t, testkit.Python(t).Path, change)
}

func newFixtureWith(t testing.TB, interpreter string, change func(*python.Config)) *fixture {
	t.Helper()
	return newFixtureIn(t, interpreter, change, shm.PoolConfig{}, nil)
}

// newFixtureIn returns a backend whose pool has limits, in an environment that edit changes first,
// if not nil.
func newFixtureIn(t testing.TB, interpreter string, change func(*python.Config), limits shm.PoolConfig, edit func(*process.Environment)) *fixture {
	t.Helper()
	config, err := python.ParseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	config.Executable = interpreter
	if change != nil {
		change(&config)
	}
	region, err := shm.NewRegionUpTo(config.Backing(nil), 32<<30, 64<<20, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := shm.NewPool(region, limits)
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{t: t, pool: pool, log: &testkit.Buffer{}, printed: [2]*testkit.Buffer{{}, {}}, counts: &counts{broken: make(map[string]int), custom: metrics.New(metrics.Config{})}}
	environment := process.Environment{
		Requests: pool, Log: zerolog.New(r.log),
		LogLevels: func() process.LogLevels { return process.LogLevels{Info: true, Warning: true, Error: true, Verbose: 1} },
		Stdout:    r.printed[0], Stderr: r.printed[1],
		Metrics: r.counts, ClientRegions: true,
	}
	if edit != nil {
		edit(&environment)
	}
	if r.supervisor, err = process.New(environment); err != nil {
		t.Fatal(err)
	}
	r.backend, err = python.New(python.Environment{Supervisor: r.supervisor, Files: []fs.FS{stub.Files, pyutils.Files}, Log: environment.Log, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.backend.Close()
		r.supervisor.Close()
		if err := pool.Verify(); err != nil {
			t.Errorf("pool is not sound: %v", err)
		}
		if stats := pool.Stats(); stats.Blocks != 0 {
			t.Errorf("pool has %d blocks in use after all models were closed, want 0", stats.Blocks)
		}
		pool.Close()
		if t.Failed() {
			t.Logf("log of the backend:\n%s\nprinted:\n%s%s", r.log, r.printed[0], r.printed[1])
		}
	})
	return r
}

// template returns the PID of the process that forks the backend's stubs, or 0.
func (r *fixture) template() int {
	if all := r.templates(); len(all) > 0 {
		return all[0] // older than the processes that it has forked
	}
	return 0
}

// templates returns the PIDs of all such processes, and of stubs that were just forked.
func (r *fixture) templates() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		pid, number := strconv.Atoi(entry.Name())
		if err == nil && number == nil && strings.Contains(string(line), "nereid_template") && strings.Contains(string(line), os.Getenv("XDG_CACHE_HOME")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// in returns a copy of the fixture for a subtest.
func (r *fixture) in(t testing.TB) *fixture {
	same := *r
	same.t = t
	return &same
}

// modelConfig returns the config of a model with one input and one output per data type.
func modelConfig(name string, instances int, types ...infer.DataType) *kserve.ModelConfig {
	c := &kserve.ModelConfig{
		Name: name, Backend: "python", MaxBatchSize: 8,
		InstanceGroup: []*kserve.ModelInstanceGroup{{
			Name: name + "_0", Kind: kserve.ModelInstanceGroup_KIND_CPU, Count: int32(instances),
		}},
	}
	for i, d := range types {
		c.Input = append(c.Input, &kserve.ModelInput{Name: fmt.Sprintf("IN%d", i), DataType: kserve.DataType(d), Dims: []int64{-1}})
		c.Output = append(c.Output, &kserve.ModelOutput{Name: fmt.Sprintf("OUT%d", i), DataType: kserve.DataType(d), Dims: []int64{-1}})
	}
	return c
}

// running is a model with started instances.
type running struct {
	fixture *fixture
	name    string
	model   backend.Model
	events  *fakeEvents
	dir     string
	// killAfter, if not 0, is how long requests may be open before the stub is killed.
	killAfter time.Duration
}

// fakeEvents is a minimal scheduler that counts available instances.
type fakeEvents struct {
	mu       sync.Mutex
	ups      int
	downs    int
	hopeless int
}

func (f *fakeEvents) Available(backend.Instance) {
	f.mu.Lock()
	f.ups++
	f.mu.Unlock()
}

func (f *fakeEvents) Lost(_ backend.Instance, hopeless bool) {
	f.mu.Lock()
	f.downs++
	if hopeless {
		f.hopeless++
	}
	f.mu.Unlock()
}

// copyModel copies testdata/models/<name>/model.py into a new repository.
func (r *fixture) copyModel(name string) string {
	r.t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "models", name, "model.py"))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.writeModel(name, string(source))
}

// writeModel creates a model directory with version 1 and returns it.
func (r *fixture) writeModel(name, source string) string {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), name)
	testkit.WriteFiles(r.t, dir, map[string]string{"1/model.py": source})
	return dir
}

// open opens the model in dir and starts it. It returns Start's error.
func (r *fixture) open(dir string, config *kserve.ModelConfig) (*running, error) {
	r.t.Helper()
	return r.openWith(dir, config, nil)
}

// openWith is open with settings for the model's own backend.
func (r *fixture) openWith(dir string, config *kserve.ModelConfig, settings map[string]string) (*running, error) {
	r.t.Helper()
	model, err := r.backend.Open(backend.Env{Name: config.GetName(), Version: 1, Directory: dir, Config: config, Host: r.host, Settings: settings})
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		r.t.Fatal(err)
	}
	m := &running{fixture: r, name: config.GetName(), model: model, events: &fakeEvents{}, dir: dir}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := model.Start(ctx, config, text, m.events); err != nil {
		return nil, err
	}
	r.t.Cleanup(m.close)
	return m, nil
}

// start starts the named model in testdata.
func (r *fixture) start(name string, types ...infer.DataType) *running {
	r.t.Helper()
	m, err := r.open(r.copyModel(name), modelConfig(name, 1, types...))
	if err != nil {
		r.t.Fatalf("Start %s: got error %v\nlog:\n%s", name, err, r.log)
	}
	return m
}

// close closes the model. It may be called again.
func (m *running) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.model.Close(ctx); err != nil {
		m.fixture.t.Errorf("Close: got error %v", err)
	}
}

func (m *running) instance() *process.Instance { return m.model.Instances()[0].(*process.Instance) }

// pid returns the process of an instance, 0 without one.
func (r *fixture) pid(in backend.Instance) int {
	for _, one := range r.supervisor.Instances() {
		if one.Name == in.Name() {
			return one.PID
		}
	}
	return 0
}

// pid returns the process of the first instance, 0 without one.
func (m *running) pid() int { return m.fixture.pid(m.instance()) }

// kill kills the process of the first instance, if any.
func (m *running) kill() {
	if pid := m.pid(); pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// infer executes requests as one batch on the first instance. If necessary, it waits until the
// instance is up.
func (m *running) infer(requests ...*infer.Request) ([]*infer.Response, backend.Report) {
	m.fixture.t.Helper()
	var (
		responses []*infer.Response
		report    backend.Report
	)
	lost := make([]int, len(requests))
	if !testkit.Within(patience, func() (ok bool) {
		responses, report, ok = m.try(lost, requests...)
		return ok
	}) {
		m.fixture.t.Fatalf("no stub took the batch within %v; log:\n%s", patience, m.fixture.log)
	}
	return responses, report
}

// try executes a batch once; ok is false if the instance refused it. lost counts the ended
// processes that each request was in. Like a scheduler, try updates it.
func (m *running) try(lost []int, requests ...*infer.Request) (responses []*infer.Response, report backend.Report, ok bool) {
	m.fixture.t.Helper()
	reports := make(chan backend.Report, 1)
	batch := &backend.Batch{Done: func(_ *backend.Batch, report backend.Report) { reports <- report }}
	responses = make([]*infer.Response, len(requests))
	var answered sync.WaitGroup
	for i, request := range requests {
		answered.Add(1)
		batch.Tasks = append(batch.Tasks, &backend.Task{
			Context: context.Background(), Request: request, Lost: lost[i],
			Send: func(response *infer.Response) {
				if responses[i] != nil {
					m.fixture.t.Errorf("request %d was answered twice", i)
					return
				}
				responses[i] = response
				answered.Done()
			},
		})
	}
	m.instance().Execute(batch)
	timeout := time.After(patience)
	select {
	case report = <-reports:
	case <-timeout:
		m.fixture.t.Fatalf("batch was not done within %v; log:\n%s", patience, m.fixture.log)
	}
	if report.Refused {
		for i, task := range batch.Tasks {
			lost[i] = task.Lost
		}
		return nil, report, false
	}
	all := make(chan struct{})
	go func() {
		answered.Wait()
		close(all)
	}()
	var late <-chan time.Time
	if m.killAfter > 0 {
		late = time.After(m.killAfter)
	}
	select {
	case <-all:
		return responses, report, true
	case <-late:
		m.kill()
	case <-timeout:
	}
	select {
	case <-all:
	case <-timeout:
		m.fixture.t.Fatalf("batch was not answered within %v; log:\n%s", patience, m.fixture.log)
	}
	return responses, report, true
}

// tensor returns an input. Long data is in a block of the pool, as in the bodies of the server's
// requests.
func (r *fixture) tensor(name string, d infer.DataType, shape []int64, data []byte) infer.Tensor {
	r.t.Helper()
	t := infer.Tensor{Name: name, DataType: d, Shape: shape, Data: data}
	if len(data) > 4096 {
		block, err := r.pool.Alloc(len(data))
		if err != nil {
			r.t.Fatal(err)
		}
		copy(block.Bytes(), data)
		t.Data, t.Memory = block.Bytes(), block
	}
	return t
}

func releaseInputs(requests ...*infer.Request) {
	for _, request := range requests {
		for i := range request.Inputs {
			request.Inputs[i].Release()
		}
	}
}

func releaseAll(responses []*infer.Response) {
	for _, response := range responses {
		response.Release()
	}
}

// mustInfer executes one request and fails the test for an error. The caller releases the response.
func (m *running) mustInfer(request *infer.Request) *infer.Response {
	m.fixture.t.Helper()
	responses, _ := m.infer(request)
	if responses[0].Err != nil {
		m.fixture.t.Fatalf("infer: got error %v, want none; log:\n%s", responses[0].Err, m.fixture.log)
	}
	return responses[0]
}

// small returns a request with one input of four bytes.
func (r *fixture) small() *infer.Request {
	return &infer.Request{Inputs: []infer.Tensor{r.tensor("IN0", infer.Uint8, []int64{1, 4}, []byte{1, 2, 3, 4})}}
}

// envOf returns the backend.Env of a model.
func envOf(dir string, config *kserve.ModelConfig) backend.Env {
	return backend.Env{Name: config.GetName(), Version: 1, Directory: dir, Config: config}
}
